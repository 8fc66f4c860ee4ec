/* What arrives from workers. */
#pragma once
#include "net/conn.h"

/* The callbacks of connections to workers, whose user is a struct link. */
extern const struct cw_conn_ops cw_arrivals_ops;
