// Boost.JSON, compiled once: the build links no Boost library.
#include <boost/json/src.hpp>
