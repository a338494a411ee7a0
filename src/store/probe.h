#pragma once
#include "store/object_store.h"
namespace celld { Task<Result<void>> probe_store(World& world, ObjectStore& store); }
