// Boost.Beast and Asio's TLS, compiled once: the build links no Boost library.
#include <boost/asio/ssl/impl/src.hpp>
#include <boost/beast/src.hpp>
