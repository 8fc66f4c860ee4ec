/* Messages from workers. */
#pragma once
#include "net/conn.h"

/* The callbacks of connections to workers; their user is a struct link. Loop's thread; they take the mutex.
 */
extern const struct cw_conn_ops cw_arrivals_ops;
