/* The LTX objects of one cell: drained, merged, listed, named by manifests, deleted.
 *
 * Node 1 owns the cell and has proven two commits. It drains them to the objects A (TXID 1) and B (TXID 2) and may
 * merge both, or write a snapshot of both before B is drained: M1. Nodes 2 and 3 take the cell over, whenever
 * they like, and write snapshots of their own, M2 and M3. A DELETE, once sent, arrives at any time, also twice.
 * That takeovers find all that was proven is in ownership.pml; here is which objects they may rely on.
 *
 * Each variant makes one rule false and must break the promise that stands beside it.
 *
 * holds with: -DNODES=3
 */

#define adopt_all_listed        1  /* breaks objects_exist: also objects that the manifest covers */
#define delete_before_manifest  2  /* breaks objects_exist */
#define delete_after_rejected   3  /* breaks objects_exist: whatever became of the manifest's swap */
#define manifest_blindly        4  /* breaks objects_exist: plain PUT of own.json */
#define claim_another_version   5  /* breaks objects_exist: swap on a version newer than the manifest that was read */
#define readopt_source          6  /* breaks objects_exist: an object that is drained twice comes back into the chain */
#define forget_manifest         7  /* breaks chain_is_whole: only what is listed */
#include "promise.h"
#ifndef NODES
#define NODES 3
#endif

#define A 1
#define B 2
#define M(n) (2 << (n))       /* M1 = 4, M2 = 8, M3 = 16 */
#define ANY_M 28
#define reaches(set) (((set) & (B | ANY_M)) -> 2 : (((set) & A) -> 1 : 0))
#define whole(set) (((set) & ANY_M) || ((set) & (A | B)) == (A | B))
/* Objects that end after TXID t. */
#define after(t) ((t) == 0 -> 31 : ((t) == 1 -> 30 : 0))

byte stored;                  /* objects in the bucket */
byte owner = 1, named, txid, version;   /* own.json: node, manifest, its final TXID, version */
byte dead;                    /* DELETEs under way */
byte chain[4];                /* what each node restores from; what is its garbage */
byte garbage[4];

promise(objects_exist);
promise(chain_is_whole);
/* The manifest may be restored from by anybody, the chain by the owner, at any time. */
#define check must(objects_exist, (named & ~stored) == 0 && (chain[owner] & ~stored) == 0)

/* Ownership::checkpoint. An outcome that is never learnt is a node that does not go on. */
#define manifest(n) :: atomic { chain[n] && (chain[n] != mine || garbage[n]) && whole_or_drained(n) -> \
  if :: version == known || broken(manifest_blindly) -> \
          named = plan(chain[n]); txid = reaches(named); version++; known = version; mine = chain[n]; ok = true; check \
     :: else -> ok = broken(delete_after_rejected) fi; \
  if :: ok -> dead = dead | (garbage[n] & ~chain[n] & ~after(txid)); \
              garbage[n] = garbage[n] & after(txid) \
     :: else -> goto lost fi }
#define plan(set) ((broken(readopt_source) && whole((set) & (A | B))) -> (set) & (A | B) : (set))
#define whole_or_drained(n) (reaches(chain[n]) > 0)
/* Drainer::merge_tail, write_snapshot */
#define compact(n) :: atomic { !(chain[n] & M(n)) && !compacted -> stored = stored | M(n); compacted = true } \
  :: atomic { compacted && !(chain[n] & M(n)) -> garbage[n] = (garbage[n] | chain[n]) & ~M(n); chain[n] = M(n) }
#define careless_delete(n) :: atomic { broken(delete_before_manifest) && (chain[n] & M(n)) -> dead = dead | garbage[n] }

#define drained_to(object) \
  if :: broken(readopt_source) || reaches(object) > reaches(chain[1]) -> chain[1] = chain[1] | object \
     :: (chain[1] & object) -> skip \
     :: else -> garbage[1] = garbage[1] | object fi

active proctype First() {
  byte known, mine, put; bool ok, compacted, repeated;
  do
  /* Drainer::write_object; a cycle that failed is repeated */
  :: atomic { put == 0 -> stored = stored | A; put = 1; drained_to(A) }
  :: atomic { put == 1 -> stored = stored | B; put = 2; drained_to(B) }
  :: atomic { put == 1 && !repeated -> repeated = true; put = 0 }
  compact(1)
  careless_delete(1)  /* broken */
  manifest(1)
  od;
lost: skip
}

proctype Next(byte n) {
  byte known, mine, seen, at; bool ok, compacted;
again:
  atomic { owner != n -> known = version; seen = named; at = txid };       /* own.json */
  atomic { stored = stored | A | B };                      /* what node 1 had not drained: its journal's tail */
  atomic {                                                 /* list_chain, plan_restore */
    if :: broken(adopt_all_listed) :: else -> ok = true fi;
    if :: ok -> seen = (broken(forget_manifest) -> 0 : seen) | (stored & after(at)) :: else -> seen = seen | stored fi;
    ok = false;
    if :: whole(seen & (A | B)) -> mine = A | B
       :: (seen & M(1)) -> mine = M(1)
       :: (seen & M(2)) -> mine = M(2)
       :: (seen & M(3)) -> mine = M(3)
       :: !whole(seen) -> must(chain_is_whole, version != known); goto again fi };  /* only if broken */
  atomic {
    if :: broken(claim_another_version) -> known = version :: else fi;
    if :: version == known -> owner = n; version++; known = version; chain[n] = mine; mine = named;
          garbage[n] = seen & ~chain[n] & after(at); seen = 0; at = 0; check
       :: else -> mine = 0; goto again fi };
  do
  compact(n)
  careless_delete(n)  /* broken */
  manifest(n)
  od;
lost: skip
}

active proctype Network() {
#define delete_arrives(object) :: atomic { (dead & object) && (stored & object) -> stored = stored & ~object; check }
end:
  do delete_arrives(A) delete_arrives(B) delete_arrives(M(1)) delete_arrives(M(2)) delete_arrives(M(3)) od
}

init { atomic { run Next(2); if :: NODES > 2 -> run Next(3) :: else fi } }
