#!/usr/bin/env python3
"""spec/run notices what it is there to notice: it is run on small models that are wrong on purpose."""

import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))

MODEL = """/* holds with: -DLAST=3 */
#define skip_check 1  /* breaks small */
#include "promise.h"
byte n;
promise(small);
promise(even);
active proctype P() {
  do
  :: atomic { n < LAST || broken(skip_check) -> n++; must(small, n <= 3) }
  :: atomic { n == LAST -> break }
  od
}
"""

CASES = {
    "all as they should be": lambda m: m,
    "holds, but it should break small": lambda m: m.replace(" || broken(skip_check)", ""),
    "breaks small; see": lambda m: m.replace("LAST=3", "LAST=4"),
    "breaks even, but": lambda m: m.replace("must(small, n <= 3)", "even = n <= 3; assert(even)"),
    "never happens": lambda m: m.replace("n == LAST ->", "n == 9 -> n = 0;"),
    "max search depth too small": lambda m: m.replace("byte n;", "int n;").replace("LAST=3", "LAST=30000").replace("<= 3", "<= 30000"),
    "says nowhere what it holds with": lambda m: m.replace("holds with", "good with"),
    "cannot read": lambda m: m.replace("breaks small", "breaks small, I think"),
    "spin:": lambda m: m.replace("byte n;", "byte"),
}


def main():
    wrong = 0
    for said, change in CASES.items():
        folder = tempfile.mkdtemp(prefix="celld-spec-test-")
        try:
            for name in ("run", "promise.h"):
                shutil.copy(os.path.join(HERE, name), folder)
            with open(os.path.join(folder, "model.pml"), "w") as f:
                f.write(change(MODEL))
            done = subprocess.run([os.path.join(folder, "run")], capture_output=True, text=True, timeout=120)
            out = done.stdout + done.stderr
            code = 0 if said == "all as they should be" else 1
            if done.returncode != code or said not in out:
                wrong += 1
                print(f"expected exit code {code} and \"{said}\", got {done.returncode}:\n{out}")
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"{len(CASES)} cases, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
