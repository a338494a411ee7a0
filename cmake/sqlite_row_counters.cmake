# sqlite3.c with two more counters per statement, readable with sqlite3_stmt_status():
#
#   9   rows read: every row or entry of a table or index that the statement arrived at, and every
#       entry that count(*) counted
#   10  rows written: every row or entry put into a table or index, every row deleted
#
# Cloudflare bills and reports by such counters; SQLite has none. Temporary tables do not count.
# A place that is not found exactly stops the build: then SQLite has changed and this must too.
#
#   celld_patch_sqlite(INPUT OUTPUT)

function(celld_patch_sqlite input output)
  file(READ ${input} text)

  macro(replace_once from to)
    string(FIND "${text}" "${from}" first)
    string(FIND "${text}" "${from}" last REVERSE)
    if(first EQUAL -1 OR NOT first EQUAL last)
      message(FATAL_ERROR "sqlite3.c: expected exactly one of:\n${from}")
    endif()
    string(REPLACE "${from}" "${to}" text "${text}")
  endmacro()

  # Places for the counters.
  replace_once("  u32 aCounter[9]; " "  u32 aCounter[11];")

  # Rows read: seeks, first and last, next and previous, point lookups by rowid, count(*).
  replace_once(
"  if( res ){
    goto jump_to_p2;
  }else if( eqOnly ){"
"  if( !res && !pC->isEphemeral ) p->aCounter[9]++;
  if( res ){
    goto jump_to_p2;
  }else if( eqOnly ){")
  replace_once(
"  rc = sqlite3BtreeLast(pCrsr, &res);
  pC->nullRow = (u8)res;"
"  rc = sqlite3BtreeLast(pCrsr, &res);
  if( !rc && !res && pOp->p2>0 && !pC->isEphemeral ) p->aCounter[9]++;
  pC->nullRow = (u8)res;")
  replace_once(
"    rc = sqlite3BtreeFirst(pCrsr, &res);
    pC->deferredMoveto = 0;"
"    rc = sqlite3BtreeFirst(pCrsr, &res);
    if( !rc && !res && !pC->isEphemeral ) p->aCounter[9]++;
    pC->deferredMoveto = 0;")
  replace_once(
"    pC->nullRow = 0;
    p->aCounter[pOp->p5]++;"
"    pC->nullRow = 0;
    if( pC->eCurType==CURTYPE_BTREE && !pC->isEphemeral ) p->aCounter[9]++;
    p->aCounter[pOp->p5]++;")
  replace_once(
"  VdbeBranchTaken(res!=0,2);
  pC->seekResult = res;
  if( res!=0 ){"
"  VdbeBranchTaken(res!=0,2);
  pC->seekResult = res;
  if( res==0 && !pC->isEphemeral ) p->aCounter[9]++;
  if( res!=0 ){")
  replace_once(
"    rc = sqlite3BtreeCount(db, pCrsr, &nEntry);
    if( rc ) goto abort_due_to_error;"
"    rc = sqlite3BtreeCount(db, pCrsr, &nEntry);
    if( rc ) goto abort_due_to_error;
    p->aCounter[9] += (u32)nEntry;")

  # Rows written: tables, indexes and tables without rowid, deletions.
  replace_once(
"  /* Invoke the update-hook if required. */
  if( rc ) goto abort_due_to_error;
  if( pTab ){"
"  /* Invoke the update-hook if required. */
  if( rc ) goto abort_due_to_error;
  if( !pC->isEphemeral ) p->aCounter[10]++;
  if( pTab ){")
  replace_once(
"  pC->cacheStatus = CACHE_STALE;
  if( rc) goto abort_due_to_error;
  break;"
"  pC->cacheStatus = CACHE_STALE;
  if( rc) goto abort_due_to_error;
  if( !pC->isEphemeral ) p->aCounter[10]++;
  break;")
  replace_once(
"  if( opflags & OPFLAG_NCHANGE ){
    p->nChange++;"
"  if( opflags & OPFLAG_NCHANGE ){
    p->aCounter[10]++;
    p->nChange++;")
  replace_once(
"  if( pOp->p3 ){
    p->nChange += nChange;"
"  if( pOp->p3 ){
    p->aCounter[10] += (u32)nChange;
    p->nChange += nChange;")

  file(CONFIGURE OUTPUT ${output} CONTENT "@text@" @ONLY)
endfunction()
