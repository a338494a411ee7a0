/* The journal of one node D, with two cells in it, and its takeover.
 *
 * D commits A1 and B1 (slot 1), A2 (slot 2), B2 (slot 3); with SPLIT, A2 is so large that it takes slot 2
 * and a part of slot 3. Two takers, who want one cell each, believe D dead whenever they like: nothing here
 * depends on a clock. A node that crashes or is suspended is one that is not scheduled any more.
 *
 * The network: a request that was sent arrives at any later time, any number of times, or never; its sender
 * learns the outcome at any later time, or never.
 *
 * Each variant makes one rule false and must break the promise that stands beside it.
 *
 * holds with: -DS=3 -DTAKERS=1 -DSPLIT=1
 * holds with: -DS=3 -DTAKERS=1
 * holds with: -DS=2 -DTAKERS=2 -DLATE=0
 * holds with: -DS=3 -DTAKERS=1 -DLATE=0 -DLOSS=1
 * holds with: -DS=3 -DTAKERS=1 -DLATE=0 -DLOSS=2
 */

#define ack_before_durable         1  /* breaks acknowledged_is_restored: acknowledges what is only sent */
#define ack_over_hole              2  /* breaks acknowledged_is_restored: a created slot counts, whatever is below */
#define unknown_create_is_applied  3  /* breaks acknowledged_is_restored: no reply is taken for yes */
#define drain_past_durable         4  /* breaks prefix_is_final: objects of slots that are only sent */
#define drain_into_split           5  /* breaks acknowledged_is_restored: the mark passes the first half of a commit */
#define mark_after_one_cell        6  /* breaks acknowledged_is_restored: the mark moves when one cell's object is written */
#define mark_before_alarms         7  /* breaks alarms_are_told: the mark moves before the alarm index is written */
#define delete_before_mark         8  /* breaks needed_slot_exists: slots go when the objects are written */
#define adopt_newest_attempt       9  /* breaks needed_slot_exists: any success of a renewal is taken for the newest one's */
#define renew_old_mark            10  /* breaks needed_slot_exists: a renewal carries the mark of the start */
#define retry_blindly             11  /* breaks stops_only_when_taken: the second answer to a repeated swap counts */
#define close_undrained           12  /* breaks acknowledged_is_restored: a shutdown says recovered too early */
#define claim_before_recovery     13  /* breaks acknowledged_is_restored */
#define list_before_recovery      14  /* breaks acknowledged_is_restored: the prefix is listed too early */
#define fence_without_freeze      15  /* breaks acknowledged_is_restored: the record stays open */
#define skip_fence                16  /* breaks acknowledged_is_restored */
#define fence_once                17  /* breaks acknowledged_is_restored: looks for the end, fences there, whoever won */
#define unknown_fence_is_applied  18  /* breaks acknowledged_is_restored */
#define pass_over_fence           19  /* breaks prefix_is_final: looks for the first free slot, also above a fence [-DS=2 -DTAKERS=2 -DLATE=0] */
#define read_before_fence         20  /* breaks acknowledged_is_restored: what is found before the fence is all */
#define failed_list_is_empty      21  /* breaks acknowledged_is_restored */
#define recover_one_cell          22  /* breaks acknowledged_is_restored: only the tail of the cell that is wanted [-DS=2 -DTAKERS=2 -DLATE=0] */
#define forget_tail_alarms        23  /* breaks alarms_are_told */
#define missing_is_recovered      24  /* breaks acknowledged_is_restored: without a record there is nothing to recover [-DS=3 -DTAKERS=1 -DLATE=0 -DLOSS=1] */
#define look_only_above           25  /* breaks acknowledged_is_restored: a hole where the LIST showed a slot is the end [-DS=3 -DTAKERS=1 -DLATE=0 -DLOSS=2] */
#define no_look_above_fence       26  /* breaks acknowledged_is_restored: any hole is the end [-DS=3 -DTAKERS=1 -DLATE=0 -DLOSS=1] */
#define delete_unmarked           27  /* breaks acknowledged_is_restored: slots go before a later one tells that they are drained [-DS=3 -DTAKERS=1 -DLATE=0 -DLOSS=1] */
#define collect_fence             28  /* breaks acknowledged_is_restored: a fence is deleted like other slots */
#include "promise.h"
#ifndef SPLIT
#define SPLIT 0
#endif
#ifndef LATE
#define LATE 1
#endif
#ifndef LOSS
#define LOSS 0                /* of the record: 1 it is deleted, 2 it is put back in an old version */
#endif
#ifndef TAKERS
#define TAKERS 2
#endif

#ifndef S
#define S 3                   /* slots that D may write; one more can hold a fence */
#endif
#define F (S + 1)
#define bit(i) (1 << (i))
#define CELL_A 5              /* commits A1 = 1, A2 = 4 */
#define CELL_B 10             /* commits B1 = 2, B2 = 8 */
/* The commits that end in the slots up to i, and those between two marks that a reader can put together. */
#define upto(i) ((i) == 0 -> 0 : ((i) == 1 -> 3 : ((i) == 2 && S == 3 -> (SPLIT -> 3 : 7) : 15)))
#define between(lo, hi) (upto(hi) & ~upto(lo) & ~((SPLIT && (lo) == 2) -> 4 : 0))
#define drainable(i) ((SPLIT && (i) == 2) -> 1 : (i))

/* The bucket. */
mtype = { EMPTY, DATA, FENCE, OPEN, FENCING, RECOVERED, MISSING };
mtype slot[F + 1] = EMPTY;    /* journal/D/<i>.jnl */
byte mark_in[S + 1];          /* what slot i tells of `drained` */
mtype state = OPEN;           /* nodes/D.json: state, drained, version */
byte drained, version;
bool lost;                    /* in the record: whoever wrote it anew found none */
byte prefix;                  /* commits in LTX objects, of both cells */
byte index, tail_index;       /* commits whose alarms are told by D's shards and by the recoverers' */
/* The network: what may still arrive. */
byte sent;                    /* creates of slots 1 to sent */
byte created;                 /* of these, arrived at least once */
byte fences;                  /* creates of a fence, a bit for each slot */
byte dead;                    /* deletes of slots 1 to dead */
bool over;                    /* deletes of what a recoverer has done with */
bool gone;                    /* the record was lost, or put back in an old version */
/* What really happened. */
byte acked, claimed, restored;

promise(acknowledged_is_restored);
promise(prefix_is_final);
promise(needed_slot_exists);
promise(stops_only_when_taken);
promise(alarms_are_told);

/* PUT of an LTX object; a prefix that was restored from may not grow. */
#define put(commits) prefix = prefix | (commits); must(prefix_is_final, (prefix & claimed & ~restored) == 0)
/* A version of the record that D never wrote. What nobody looks at any more is cleared, so that fewer states differ. */
#define recovered state = RECOVERED; version = 15; over = true; lost = false; drained = 0; index = 0; tail_index = 0
#if S == 3
#define top_of(x) ((x(3)) -> 3 : ((x(2)) -> 2 : ((x(1)) -> 1 : 0)))
#define each_slot(x) x(1) x(2) x(3)
#else
#define top_of(x) ((x(2)) -> 2 : ((x(1)) -> 1 : 0))
#define each_slot(x) x(1) x(2)
#endif
#define is_data(i) slot[i] == DATA
#define is_there(i) slot[i] != EMPTY
#define newest_mark mark_in[top_of(is_data)]     /* Recoverer::newest_mark; mark_in[0] is 0 */

/* Journal::delete_through: what the mark in a durable slot has passed */
#define passed(i) ((mark_in[i] < known && !broken(delete_unmarked)) -> mark_in[i] : known)
#define delete_slots dead = (passed(durable) > dead -> passed(durable) : dead)

active proctype D() {
  bool renewed, told, closing;
  byte durable, cut, known, known_version, attempts, applied, puts;
  do
  /* Journal::pump, create_slot, advance */
  :: atomic { !closing && sent < S -> sent++; mark_in[sent] = known }
  :: atomic { durable < sent && ((created & bit(durable + 1)) || broken(unknown_create_is_applied)) -> durable++;
              delete_slots }
#define fenced_at(i) :: atomic { durable < i && i <= sent && slot[i] == FENCE -> \
                                 must(stops_only_when_taken, state != OPEN || gone); goto stop }
  each_slot(fenced_at)
  /* the output gates */
  :: atomic { (upto(durable) & ~acked) -> acked = acked | upto(durable);
              must(acknowledged_is_restored, (acked & claimed & ~restored) == 0) }
#define careless_ack(i) :: atomic { i <= sent && (upto(i) & ~upto(i - 1) & ~acked) && \
     (broken(ack_before_durable) || (broken(ack_over_hole) && (created & bit(i)))) -> \
     acked = acked | (upto(i) & ~upto(i - 1)); must(acknowledged_is_restored, (acked & claimed & ~restored) == 0) }
  each_slot(careless_ack)  /* broken */
  /* Drainer::cycle: objects of each cell, alarm index, mark */
  :: atomic { cut == known ->
              if :: broken(drain_past_durable) -> cut = sent
                 :: broken(drain_into_split) -> cut = durable
                 :: else -> cut = drainable(durable) fi;
              if :: cut > known :: else -> cut = known fi;
              puts = 0; told = false }
  :: atomic { cut > known && !(puts & 1) -> put(upto(cut) & ~upto(known) & CELL_A); puts = puts | 1 }
  :: atomic { cut > known && !(puts & 2) -> put(upto(cut) & ~upto(known) & CELL_B); puts = puts | 2 }
  :: atomic { cut > known && puts == 3 && !told -> told = true;
              if :: state != RECOVERED -> index = index | upto(durable) :: else fi;
              if :: broken(delete_before_mark) -> dead = cut :: else fi }
  /* LeaseKeeper::renew: attempts with different marks may be under way, all on one version */
  :: atomic { cut > known && !(attempts & bit(cut)) &&
              (told || (puts == 3 && broken(mark_before_alarms)) || (puts && broken(mark_after_one_cell))) ->
              attempts = attempts | bit(cut) }
  :: atomic { !LOSS && !renewed && attempts == 0 -> renewed = true;
              attempts = bit(broken(renew_old_mark) -> 0 : known) }
#define arrives(i) :: atomic { (attempts & bit(i)) && version == known_version -> \
                               drained = i; version++; applied = i + 1 }
  arrives(0) each_slot(arrives)
  :: atomic { applied ->                             /* adopt: by the reply or the read-back */
              if :: broken(adopt_newest_attempt) && (attempts & bit(cut)) -> known = cut
                 :: broken(renew_old_mark) -> known = (applied - 1 > known -> applied - 1 : known)
                 :: else -> known = applied - 1 fi;
              known_version++; attempts = 0; applied = 0;
              delete_slots }
  :: atomic { (version != known_version + (applied -> 1 : 0) || (applied && broken(retry_blindly))) ->
              must(stops_only_when_taken, state != OPEN || gone); goto stop }
  /* Core::close: everything drained, then the record says recovered */
  :: atomic { !closing && attempts == 0 && version == known_version &&
              ((known == sent && durable == sent) || broken(close_undrained)) -> closing = true }
  :: atomic { closing && version == known_version -> recovered; goto stop }
  od;
stop: atomic { durable = 0; cut = 0; known = 0; known_version = 0; attempts = 0; applied = 0; puts = 0; told = false; renewed = false; closing = false; created = 15 }
}

/* Requests that arrive. */
active proctype Network() {
#define create_arrives(i) :: atomic { i <= sent && slot[i] == EMPTY && (LATE || !(created & bit(i))) -> slot[i] = DATA; created = created | bit(i) }
#define fence_arrives(i)  :: atomic { (fences & bit(i)) && slot[i] == EMPTY -> slot[i] = FENCE }
#define delete_arrives(i) :: atomic { i <= dead && slot[i] != EMPTY -> slot[i] = EMPTY }
#define collect(i)        :: atomic { over && slot[i] == DATA -> slot[i] = EMPTY } /* Recoverer::delete_slots */
#define collect_any(i)    :: atomic { over && broken(collect_fence) && slot[i] == FENCE -> slot[i] = EMPTY }
end:
  do
  each_slot(create_arrives) each_slot(fence_arrives) fence_arrives(F) each_slot(collect)
  delete_arrives(1) delete_arrives(2)                      /* the last slot goes only with the others, see collect */
  each_slot(collect_any) collect_any(F)  /* broken */
#if LOSS == 1                 /* somebody deletes the record by hand, or Recoverer::forget does */
  :: atomic { !gone -> gone = true; state = MISSING; version = 14; drained = 0; lost = false }
#elif LOSS == 2               /* it is back as the node once created it */
  :: atomic { !gone && version > 0 -> gone = true; state = OPEN; version = 0; drained = 0 }
#endif
  od
}

proctype Taker(byte cell) {
  byte mark, seen, at, fence, found, top;
  if :: broken(claim_before_recovery) -> goto list :: broken(list_before_recovery) -> found = prefix & cell :: else fi;
look:                                                      /* Recoverer::look, recover_alone */
  atomic {
    at = 0; fence = 0; top = 0;
    if :: state == OPEN -> mark = drained; seen = version
       :: state == MISSING && !broken(missing_is_recovered) ->
          state = FENCING; version = 13; lost = true; goto look
       :: state == FENCING -> seen = version;
          mark = drained;
          if :: lost && newest_mark > mark -> mark = newest_mark :: else fi
       :: state == RECOVERED || (state == MISSING && broken(missing_is_recovered)) -> mark = 0; seen = 0; goto list fi;
    if :: state == FENCING || broken(fence_without_freeze) -> goto walk :: else fi };
  atomic { if :: version == seen && state == OPEN -> state = FENCING; version++ :: else fi; goto look };

walk:                                                      /* Recoverer::fence_journal */
  atomic { top = top_of(is_there); at = mark + 1 };
  do
  :: atomic { slot[at] == DATA -> at++ }
  :: atomic { slot[at] == FENCE && !broken(pass_over_fence) -> fence = at; break }
  :: atomic { slot[at] == FENCE && broken(pass_over_fence) -> if :: at < F -> at++ :: else -> fence = at; break fi }
  :: atomic { slot[at] == EMPTY && !broken(skip_fence) && !broken(fence_once) && !broken(read_before_fence) ->
              slot[at] = FENCE; fences = (LATE -> fences | bit(at) : 0);
              if :: broken(pass_over_fence) -> fence = at; break :: else fi }
  :: atomic { slot[at] == EMPTY && !broken(skip_fence) && LATE && !(fences & bit(at)) -> fences = fences | bit(at) }
  :: atomic { slot[at] == EMPTY && (broken(skip_fence) || broken(fence_once) || broken(read_before_fence) ||
                                    broken(unknown_fence_is_applied)) -> fence = at; break }
  :: atomic { broken(failed_list_is_empty) -> fence = mark + 1; break }
  od;
  /* The fence that comes too late: create it at `fence`, or above it. */
  if :: broken(fence_once) -> atomic { if :: slot[fence] == EMPTY -> slot[fence] = FENCE :: else fi }
     :: broken(read_before_fence) ->
        do :: atomic { slot[at] == DATA -> at++ } :: atomic { slot[at] == FENCE -> break }  /* broken */
           :: atomic { slot[at] == EMPTY -> slot[at] = FENCE } od  /* broken */
     :: else fi;
  /* Recoverer::recover_fenced: a hole may be a slot that was drained and deleted, if the mark is not the last one. */
  atomic {
    if :: (lost || (top >= fence && (top > fence || !broken(look_only_above)))) && newest_mark >= fence && !broken(no_look_above_fence) ->
          mark = newest_mark; fence = 0; goto walk
       :: else -> top = 0 fi };

  at = mark + 1;                                           /* Recoverer::read_slots */
  do
  :: atomic { at < fence ->
       if :: slot[at] == DATA -> at++
          :: slot[at] == EMPTY -> must(needed_slot_exists, state != FENCING || gone); goto look
          :: slot[at] == FENCE -> if :: broken(pass_over_fence) -> at++ :: else -> goto look fi fi }
  :: atomic { at >= fence -> at = 0; break }
  od;
  if :: (version == seen && state == FENCING) || broken(fence_without_freeze) :: else -> goto look fi;

  if :: broken(recover_one_cell) && cell != CELL_A :: else -> atomic { put(between(mark, fence - 1) & CELL_A) } fi;
  if :: broken(recover_one_cell) && cell != CELL_B :: else -> atomic { put(between(mark, fence - 1) & CELL_B) } fi;
  if :: broken(forget_tail_alarms) :: else -> atomic { tail_index = tail_index | between(mark, fence - 1) } fi;
  atomic {
    if :: broken(fence_without_freeze) -> goto list :: else fi;
    if :: version == seen && state == FENCING -> must(alarms_are_told, over || (prefix & ~(index | tail_index)) == 0); recovered
       :: else fi;
    goto look };

list:                                                      /* restore.cc: list_chain */
  atomic { mark = 0; seen = 0; at = 0; fence = 0;
           if :: broken(list_before_recovery) :: else -> found = prefix & cell fi };
  atomic {                                                 /* Ownership::claim_as; who wins is in ownership.pml */
    claimed = claimed | cell; restored = restored | found;
    must(acknowledged_is_restored, (acked & claimed & ~restored) == 0); found = 0 }
  /* The place of a follower: a process like this one that reads slots below a fence, and prefixes, of a node that
   * goes on living. What it shows has to be acknowledged. */
}

init {
  atomic {
    if :: TAKERS == 1 -> run Taker(CELL_A | CELL_B)
       :: else -> run Taker(CELL_A); run Taker(CELL_B) fi }
}
