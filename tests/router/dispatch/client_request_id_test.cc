#include "router/dispatch/client_request_id.h"

#include "gtest/gtest.h"

namespace baton::router {
namespace {

TEST(ClientRequestIdTest, IsTakenIfItMayStandInLogsAndHeaders) {
  for (const std::string& id : {std::string("a"), std::string("3f2a-41_c.d"),
                                std::string("Root=1-67891233:abc/d+e@f"), std::string(128, 'x')}) {
    EXPECT_EQ(ClientRequestId(id), id);
  }
}

TEST(ClientRequestIdTest, IsNotLookedAtOtherwise) {
  for (const std::string& id :
       {std::string(), std::string(129, 'x'), std::string("two words"), std::string("a\nlog line"),
        std::string("\x1b[31m"), std::string("\"quoted\""), std::string("\xc3\xa9t\xc3\xa9")}) {
    EXPECT_EQ(ClientRequestId(id), "") << id;
  }
}

}  // namespace
}  // namespace baton::router
