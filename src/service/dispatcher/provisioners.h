/*
 * Provisioners: each is a peer that can make workers exist, a pool of them. It is sent how many there should
 * be and which ones it may end; it replaces those that die. Kubernetes or Slurm are provisioners like the one
 * that starts local processes (fleet/): they need nothing but this.
 */
#pragma once
#include "base/error.h"
#include "proto/cachew.pb-c.h"
#include "service/dispatcher/types.h"

/* Handles a provisioner's message. 1: this role does not send it. */
int cw_dp_provisioner_message(struct cw_dispatcher *d, struct cw_peer *p, const Cachew__Envelope *m,
                              struct cw_error *err) _must_check_;
/* Its connection is lost: frees the pool. Its workers stay. */
void cw_dp_provisioner_lost(struct cw_dispatcher *d, struct pool *p);
/* Has each pool have the workers needed, by pool index, within its bounds; drains those that are too many. */
void cw_dp_provisioners_want(struct cw_dispatcher *d, const int *needed);
