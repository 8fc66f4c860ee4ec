#include "cli/options.h"
int cli_doctor(int argc, char **argv) { (void)argc; (void)argv; return 2; }
