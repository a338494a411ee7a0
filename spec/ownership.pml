/* One cell: claim, restore, commit, drain, checkpoint, release, takeover, by N nodes.
 *
 * The journal is what journal.pml proves of it: a commit of node n is durable, and may be acknowledged, iff n
 * is not fenced at that moment; recovery is one step that fences n and copies what n has not drained into the
 * prefixes. Any node may take any other for dead at any time. A node that crashes or is suspended is one that
 * is not scheduled any more; after a restart it has another id.
 *
 * A conditional write is a message that arrives whenever it likes, also after its sender gave up. Version
 * tokens are the content: equal bytes, equal token.
 *
 * Each variant makes one rule false and must break the promise that stands beside it.
 *
 * holds with: -DN=2 -DEPOCHS=3 -DCOMMITS=2
 * holds with: -DN=2 -DEPOCHS=4 -DCOMMITS=3
 * holds with: -DN=3 -DEPOCHS=2 -DCOMMITS=2
 */

#define claim_before_recovery     1  /* breaks acknowledged_is_restored */
#define list_before_recovery      2  /* breaks acknowledged_is_restored: the prefixes are listed too early */
#define claim_unconditionally     3  /* breaks one_owner_in_an_epoch */
#define reuse_epoch               4  /* breaks one_owner_in_an_epoch: a claim does not count up */
#define unknown_claim_is_applied  5  /* breaks one_owner_in_an_epoch */
#define forget_manifest           6  /* breaks acknowledged_is_restored: a claim puts an empty manifest of its own */
#define restore_manifest_only     7  /* breaks acknowledged_is_restored: no LIST after a takeover */
#define restore_last_epoch        8  /* breaks acknowledged_is_restored: LIST of one epoch's prefix only */
#define wake_without_journal      9  /* breaks acknowledged_is_restored: hibernated, woken from the bucket alone */
#define checkpoint_blindly       10  /* breaks nobody_is_robbed: plain PUT of own.json */
#define manifest_of_undrained    11  /* breaks manifest_is_stored: names what is still in the journal */
#define release_undrained        12  /* breaks acknowledged_is_restored */
#define serve_while_releasing    13  /* breaks acknowledged_is_restored: commits go on while the release is under way */
#define resume_unknown_release   14  /* breaks acknowledged_is_restored: "not applied yet" is taken for "no" */
#define abandon_release          15  /* breaks acknowledged_is_restored: an unknown release is forgotten, its epoch served again */
#include "promise.h"
#ifndef N
#define N 2
#endif
#ifndef EPOCHS
#define EPOCHS 3              /* highest epoch */
#endif
#ifndef COMMITS
#define COMMITS 2             /* in the whole run; a set of commits is a bit mask */
#endif
#define bit(i) (1 << (i))
#define NOBODY 0              /* nodes are 1 to N */
#define me (_pid + 1)
#define NOTHING 15            /* no commit */

/* The bucket. */
typedef Record { byte node, epoch, manifest, from }    /* own.json; `from`: the manifest's own epoch */
Record own;
byte prefix[EPOCHS + 1];      /* LTX objects of each epoch */
bool fenced[N + 1];             /* nodes/<n>.json says recovered, and a fence stands in n's journal */
byte journal[(N + 1) * (EPOCHS + 1)];
#define undrained(n, e) journal[(n) * (EPOCHS + 1) + (e)]
/* The network: one conditional write of own.json by each node. An older one of the same node that was given
   up cannot be applied any more, since the record has changed. */
typedef Message { bool sent; Record expected, next }
Message message[N + 1];
/* What really happened. */
byte commits, acked;
byte restored_epoch, restored; /* the newest restore */
byte acker[EPOCHS + 1];

promise(acknowledged_is_restored);
promise(one_owner_in_an_epoch);
promise(prefix_is_final);
promise(nobody_is_robbed);
promise(manifest_is_stored);
#define same(a, b) (a.node == b.node && a.epoch == b.epoch && a.manifest == b.manifest && a.from == b.from)
#define copy(a, b) a.node = b.node; a.epoch = b.epoch; a.manifest = b.manifest; a.from = b.from
#define clear(a) a.node = 0; a.epoch = 0; a.manifest = 0; a.from = 0
#define settled message[me].sent = false; clear(message[me].expected); clear(message[me].next)
#define written (prefix[1] | prefix[2] | prefix[EPOCHS - 1] | prefix[EPOCHS])

/* A prefix never grows by what a later restore did not see. */
#define drain(e, set) prefix[e] = prefix[e] | (set); \
                      must(prefix_is_final, restored_epoch <= (e) || ((set) & ~restored) == 0)

mtype = { IDLE, READ, LISTED, CLAIMING, OWNER, ASLEEP, RELEASING };

active [N] proctype Node() {
  mtype is = IDLE;
  Record seen;                /* own.json as read, or as it is known to be while we own it */
  byte epoch, chain, memory, pending = NOTHING, g;
  do
  /* Ownership::claim: look at own.json */
  :: atomic { is == IDLE -> copy(seen, own);
              if :: broken(list_before_recovery) -> chain = written :: else fi; is = READ }
  :: atomic { is == READ && seen.node != NOBODY && seen.node != me -> is = IDLE; clear(seen) }   /* it lives */
  :: atomic { is == READ ->
       if
       :: seen.node == NOBODY -> chain = seen.manifest                     /* released, or never owned */
       :: else ->
          if :: seen.node == me || broken(claim_before_recovery) -> skip
             :: else -> fenced[seen.node] = true; g = 1;                   /* Recoverer::recover */
                do :: g <= EPOCHS -> drain(g, undrained(seen.node, g)); g++ :: else -> g = 0; break od fi;
          if :: broken(list_before_recovery) -> chain = chain | seen.manifest
             :: broken(restore_manifest_only) -> chain = seen.manifest
             :: broken(restore_last_epoch) -> chain = seen.manifest | prefix[seen.epoch]
             :: else -> chain = seen.manifest; g = seen.from;              /* list_chain: all epochs from the manifest's */
                do :: g <= EPOCHS -> chain = chain | prefix[g]; g++ :: else -> g = 0; break od fi
       fi; is = LISTED }
  /* Ownership::claim_as: send, and learn the outcome or give up */
  :: atomic { is == LISTED && seen.epoch < EPOCHS ->
              copy(message[me].expected, seen); copy(message[me].next, seen);
              message[me].next.node = me; message[me].sent = true;
              if :: broken(reuse_epoch) && seen.epoch > 0 :: else -> message[me].next.epoch = seen.epoch + 1 fi;
              if :: broken(forget_manifest) -> message[me].next.manifest = 0; message[me].next.from = seen.epoch + 1 :: else fi;
              is = CLAIMING }
  :: atomic { is == CLAIMING && (same(own, message[me].next) ||
                                 (broken(unknown_claim_is_applied) && message[me].sent)) ->
              copy(seen, message[me].next); epoch = seen.epoch; memory = chain; is = OWNER;
              if :: same(own, seen) -> settled :: else fi;
              if :: epoch >= restored_epoch -> restored_epoch = epoch; restored = memory;
                    must(acknowledged_is_restored, (acked & ~memory) == 0)
                 :: else fi }
  :: atomic { is == CLAIMING -> is = IDLE; clear(seen); chain = 0 }
  /* Commits. They are durable at once or never; the acknowledgement may come much later. */
  :: atomic { (is == OWNER || (is == RELEASING && broken(serve_while_releasing))) && pending == NOTHING &&
              commits < COMMITS && !fenced[me] ->
              pending = commits; commits++;
              undrained(me, epoch) = undrained(me, epoch) | bit(pending); memory = memory | bit(pending) }
  :: atomic { pending != NOTHING ->
              must(acknowledged_is_restored, restored_epoch <= epoch || (restored & bit(pending)));
              must(one_owner_in_an_epoch, acker[epoch] == 0 || acker[epoch] == me);
              acker[epoch] = me; acked = acked | bit(pending); pending = NOTHING }
  /* Drainer::cycle, also of a node that is fenced and does not know it yet */
  :: atomic { (is == OWNER || is == ASLEEP) && undrained(me, epoch) ->
              drain(epoch, undrained(me, epoch));
              chain = chain | undrained(me, epoch); undrained(me, epoch) = 0 }
  /* Hibernate and wake: what the node knows of the chain, overlaid with its journal */
  :: atomic { is == OWNER && pending == NOTHING && !message[me].sent -> memory = 0; is = ASLEEP }
  :: atomic { is == ASLEEP -> memory = chain;
              if :: broken(wake_without_journal) :: else -> memory = memory | undrained(me, epoch) fi;
              must(acknowledged_is_restored, restored_epoch > epoch || (acked & ~memory) == 0); is = OWNER }
  /* Ownership::checkpoint */
  :: atomic { is == OWNER && !message[me].sent && seen.manifest != chain ->
              copy(message[me].expected, seen); copy(message[me].next, seen); message[me].sent = true;
              message[me].next.manifest = chain; message[me].next.from = epoch;
              if :: broken(manifest_of_undrained) -> message[me].next.manifest = memory :: else fi }
  :: atomic { is == OWNER && message[me].sent && same(own, message[me].next) -> copy(seen, own);
              settled }
  /* Ownership::release: all proven and drained, then the same request until its outcome is known */
  :: atomic { is == OWNER && !message[me].sent &&
              ((pending == NOTHING && undrained(me, epoch) == 0) || broken(release_undrained)) ->
              copy(message[me].expected, seen); message[me].sent = true;
              message[me].next.node = NOBODY; message[me].next.epoch = epoch;
              message[me].next.manifest = chain; message[me].next.from = epoch;
              is = RELEASING }
  :: atomic { is == RELEASING && pending == NOTHING &&
              (same(own, message[me].next) || !same(own, message[me].expected)) ->
              is = IDLE; clear(seen); epoch = 0; chain = 0; memory = 0; settled }
  :: atomic { is == RELEASING && broken(resume_unknown_release) && same(own, seen) -> is = OWNER }
  :: atomic { is == RELEASING && broken(abandon_release) && pending == NOTHING -> is = IDLE; clear(seen); epoch = 0; chain = 0; memory = 0 }
  :: atomic { is == READ && broken(abandon_release) && seen.node == me ->
              epoch = seen.epoch; chain = seen.manifest | prefix[epoch]; memory = chain; is = OWNER }  /* broken */
  od
}

/* The store: a message arrives; applied if the record is still what its sender expects. */
active proctype Store() {
#define arrives(n) :: atomic { message[n].sent && \
       (same(own, message[n].expected) || (broken(claim_unconditionally) && message[n].next.node == n) || \
        (broken(checkpoint_blindly) && message[n].expected.node == n && message[n].next.node == n)) -> \
       must(nobody_is_robbed, own.node == message[n].expected.node && own.epoch == message[n].expected.epoch); \
       must(manifest_is_stored, (message[n].next.manifest & ~written) == 0); \
       copy(own, message[n].next) }
end:
  do
  arrives(1) arrives(2)
#if N > 2
  arrives(3)
#endif
  od
}
