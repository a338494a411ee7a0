// Boost.Asio, compiled once. Its TLS half is in src/net/beast.cc.
#include <boost/asio/impl/src.hpp>
