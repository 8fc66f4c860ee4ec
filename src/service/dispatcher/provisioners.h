/* Provisioners: peers that start and stop the workers of a pool. The dispatcher tells a provisioner how many
 * workers are wanted, and which ones it may stop. The provisioner replaces workers that die. fleet/ has a
 * provisioner that starts local processes; one for Kubernetes or Slurm would use the same messages. */
#pragma once
#include "base/error.h"
#include "proto/cachew.pb-c.h"
#include "service/dispatcher/types.h"

/* Handles a provisioner's message. 1: a provisioner does not send such a message. */
int cw_dp_provisioner_message(struct cw_dispatcher *d, struct cw_peer *p, const Cachew__Envelope *m,
                              struct cw_error *err) _must_check_;
/* Call when the provisioner's connection is lost. Frees the pool; its workers stay connected. */
void cw_dp_provisioner_lost(struct cw_dispatcher *d, struct pool *p);
/* Requests `needed` workers (by pool index) from each pool, within the pool's minimum and maximum, and drains
 * idle workers that are not needed. */
void cw_dp_provisioners_want(struct cw_dispatcher *d, const int *needed);
