// The program: finds out what is asked for and runs it.
#include <cstdio>
#include <string>
#include <variant>
#include <vector>

#include "cli/commands.h"

namespace {

struct Run {
  int operator()(const celld::ExitRequest& request) const {
    std::fputs(request.text.c_str(), request.status == 0 ? stdout : stderr);
    return request.status;
  }
  int operator()(const celld::DevOptions& options) const { return celld::run_dev(options); }
  int operator()(const celld::DeployOptions& options) const { return celld::run_deploy(options); }
  int operator()(const celld::NodeOptions& options) const { return celld::run_node(options); }
  int operator()(const celld::DiagnoseBucketOptions& options) const {
    return celld::run_diagnose_bucket(options);
  }
};

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  return std::visit(Run{}, celld::parse_command_line(arguments));
}
