#include "common/config.h"

#include <cstdio>
#include <fstream>

#include "common/host_port.h"
#include "common/version.h"
#include "gmock/gmock.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/test_path.h"

namespace baton {
namespace {

using namespace std::chrono_literals;
using ::baton::testing::IsOk;
using ::baton::testing::IsOkAndHolds;
using ::baton::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

struct Config {
  std::string listen = "127.0.0.1:0";
  std::string name = "x";
  std::string device = "cpu";
  bool reflection = true;
  int page_tokens = 256;
  int64_t pages = 1024;
  double temperature = 0.5;
  std::chrono::nanoseconds grace = 30s;
  std::vector<std::string> peers;
};

class ConfigTest : public ::testing::Test {
 protected:
  ConfigTest() {
    parser_.Group("Network");
    parser_.Add("listen", &config_.listen, "host:port to serve on").Format("host:port", IsHostPort);
    parser_.Add("peers", &config_.peers, "host:port of each peer").Format("host:port", IsHostPort);
    parser_.Add("name", &config_.name, "anything");
    parser_.Add("reflection", &config_.reflection, "serve reflection");
    parser_.Group("Cache");
    parser_.Add("page-tokens", &config_.page_tokens, "tokens a page covers")
        .Range(128, 4096)
        .MultipleOf(128)
        .Unit("tokens");
    parser_.Add("pages", &config_.pages, "pages of the cache").Range(1, 1 << 28);
    parser_.Group("Rest");
    parser_.Add("device", &config_.device, "what computes").OneOf({"cpu", "cuda"});
    parser_.Add("temperature", &config_.temperature, "of sampling").Range(0, 2);
    parser_.Add("grace", &config_.grace, "time to drain").Range(0, 600);
  }

  ~ConfigTest() override {
    if (!path_.empty()) std::remove(path_.c_str());
  }

  absl::StatusOr<ParseOutcome> Parse(std::vector<const char*> flags) {
    flags.insert(flags.begin(), "baton-test");
    return parser_.Parse(static_cast<int>(flags.size()), flags.data());
  }

  // Writes a configuration file and returns its path.
  const std::string& File(const std::string& text) {
    path_ = testing::TestPath("config").string() + ".yaml";
    std::ofstream(path_) << text;
    return path_;
  }
  absl::Status ParseText(const std::string& text) { return parser_.ParseFile(File(text)); }

  Config config_;
  ConfigParser parser_{"baton-test", "Tests configuration."};
  std::string path_;
};

TEST_F(ConfigTest, WithoutFlagsEveryFieldKeepsItsDefault) {
  EXPECT_THAT(Parse({}), IsOkAndHolds(ParseOutcome::kRun));
  EXPECT_EQ(config_.listen, "127.0.0.1:0");
  EXPECT_EQ(config_.page_tokens, 256);
  EXPECT_THAT(config_.peers, IsEmpty());
}

TEST_F(ConfigTest, FlagsSetEveryKindOfField) {
  ASSERT_THAT(Parse({"--listen=[::1]:80", "--peers=a:1, b:2", "--peers", "c:3",
                     "--reflection=false", "--page-tokens", "128", "--pages=268435456",
                     "--device=cuda", "--temperature=0.25", "--grace=1m30s"}),
              IsOk());
  EXPECT_EQ(config_.listen, "[::1]:80");
  EXPECT_THAT(config_.peers, ElementsAre("a:1", "b:2", "c:3"));
  EXPECT_FALSE(config_.reflection);
  EXPECT_EQ(config_.page_tokens, 128);
  EXPECT_EQ(config_.pages, 268435456);
  EXPECT_EQ(config_.device, "cuda");
  EXPECT_EQ(config_.temperature, 0.25);
  EXPECT_EQ(config_.grace, 90s);
}

TEST_F(ConfigTest, ABareSwitchMeansTrue) {
  config_.reflection = false;
  ASSERT_THAT(Parse({"--reflection"}), IsOk());
  EXPECT_TRUE(config_.reflection);
}

TEST_F(ConfigTest, DurationsTakeUnitsOrPlainSeconds) {
  for (const auto& [flag, expected] :
       {std::pair<const char*, std::chrono::nanoseconds>{"--grace=250ms", 250ms},
        {"--grace=2m", 2min},
        {"--grace=5", 5s},
        {"--grace=0.5", 500ms},
        {"--grace=0", 0s}}) {
    ASSERT_THAT(Parse({flag}), IsOk()) << flag;
    EXPECT_EQ(config_.grace, expected) << flag;
  }
}

TEST_F(ConfigTest, ABadValueIsNamedWithWhatIsAccepted) {
  EXPECT_THAT(Parse({"--page-tokens=many"}),
              StatusIs(kInvalid,
                       "--page-tokens: \"many\" is not accepted; expected a whole number, "
                       "128 to 4096, a multiple of 128, in tokens"));
  EXPECT_THAT(Parse({"--device=tpu"}),
              StatusIs(kInvalid, "--device: \"tpu\" is not accepted; expected one of cpu, cuda"));
  EXPECT_THAT(Parse({"--reflection=perhaps"}),
              StatusIs(kInvalid, HasSubstr("expected true or false")));
  for (const char* flag : {"--grace=soon", "--grace=-1s", "--grace=inf", "--grace=1e300"}) {
    EXPECT_THAT(Parse({flag}), StatusIs(kInvalid, HasSubstr("such as 250ms"))) << flag;
  }
  for (const char* flag : {"--temperature=nan", "--temperature=warm"}) {
    EXPECT_THAT(Parse({flag}), StatusIs(kInvalid, HasSubstr("a number, 0 to 2"))) << flag;
  }
}

TEST_F(ConfigTest, LimitsAreInclusiveAndBeyondThemIsAnError) {
  EXPECT_THAT(Parse({"--page-tokens=128"}), IsOk());
  EXPECT_THAT(Parse({"--page-tokens=4096"}), IsOk());
  EXPECT_THAT(Parse({"--page-tokens=127"}), StatusIs(kInvalid, HasSubstr("\"127\"")));
  EXPECT_THAT(Parse({"--page-tokens=4097"}), StatusIs(kInvalid));
  EXPECT_THAT(Parse({"--pages=99999999999999999999"}),
              StatusIs(kInvalid, HasSubstr("1 to 268435456")));
  EXPECT_THAT(Parse({"--page-tokens=200"}), StatusIs(kInvalid, HasSubstr("a multiple of 128")));
  EXPECT_THAT(Parse({"--grace=11m"}), StatusIs(kInvalid, HasSubstr("0 to 10m")));
}

TEST_F(ConfigTest, AnUnknownFlagIsNamedWithASuggestion) {
  EXPECT_THAT(Parse({"--page-token=128"}),
              StatusIs(kInvalid, HasSubstr("unknown flag --page-token, did you mean "
                                           "--page-tokens?")));
  EXPECT_THAT(Parse({"--zzzzzzzzzzzz"}), StatusIs(kInvalid, Not(HasSubstr("did you mean"))));
}

TEST_F(ConfigTest, PositionalArgumentsAreRefused) {
  EXPECT_THAT(Parse({"cache"}), StatusIs(kInvalid, "unexpected argument \"cache\""));
}

TEST_F(ConfigTest, AFlagWithoutItsValueIsNamed) {
  EXPECT_THAT(Parse({"--listen"}), StatusIs(kInvalid, HasSubstr("--listen has no value")));
  EXPECT_THAT(Parse({"--config"}), StatusIs(kInvalid, HasSubstr("--config has no value")));
  EXPECT_THAT(Parse({"--pages="}), StatusIs(kInvalid, HasSubstr("--pages: \"\"")));
  EXPECT_THAT(Parse({"--reflection="}), StatusIs(kInvalid, HasSubstr("--reflection has no value")));
}

TEST_F(ConfigTest, AFlagIsNeverTheValueOfAnother) {
  EXPECT_THAT(Parse({"--name=", "--pages=3"}), IsOk());
  EXPECT_EQ(config_.name, "");
  EXPECT_EQ(config_.pages, 3);
  EXPECT_THAT(Parse({"--pages=4", "--name="}), IsOk());
  EXPECT_EQ(config_.pages, 4);
  EXPECT_THAT(Parse({"--name", "--pages=5"}), StatusIs(kInvalid, HasSubstr("--name has no value")));
  EXPECT_THAT(Parse({"--name=--pages=5"}), IsOk());
  EXPECT_EQ(config_.name, "--pages=5");
}

TEST_F(ConfigTest, AnAddressWithAPortThatWouldWrapIsRefused) {
  EXPECT_THAT(Parse({"--listen=[::1]:65535"}), IsOk());
  EXPECT_THAT(
      Parse({"--listen=127.0.0.1:99999"}),
      StatusIs(kInvalid, "--listen: \"127.0.0.1:99999\" is not accepted; expected host:port"));
  EXPECT_THAT(Parse({"--peers=a:1,b"}), StatusIs(kInvalid, HasSubstr("a list of host:port")));
  EXPECT_THAT(ParseText("listen: nowhere\n"), StatusIs(kInvalid, HasSubstr("\"nowhere\"")));
}

TEST_F(ConfigTest, AListHasNoEmptyItems) {
  EXPECT_THAT(Parse({"--peers="}), IsOk());
  EXPECT_THAT(config_.peers, IsEmpty());
  for (const char* flag : {"--peers=,", "--peers=a:1,,b:2", "--peers=a:1,"}) {
    EXPECT_THAT(Parse({flag}), StatusIs(kInvalid, HasSubstr("--peers"))) << flag;
  }
}

TEST_F(ConfigTest, AScalarFlagGivenTwiceIsRefused) {
  EXPECT_THAT(Parse({"--pages=1", "--pages=2"}), StatusIs(kInvalid, "--pages is given 2 times"));
}

TEST_F(ConfigTest, ARequiredOptionMustComeFromFlagOrFile) {
  std::string model;
  parser_.Add("model-dir", &model, "directory").Required();
  EXPECT_THAT(Parse({}), StatusIs(kInvalid, "--model-dir is required: directory"));
  EXPECT_THAT(Parse({"--model-dir=m"}), IsOk());
}

TEST_F(ConfigTest, ARequiredOptionIsMissingWhereNothingIsGiven) {
  std::string model;
  std::vector<std::string> workers;
  parser_.Add("model-dir", &model, "directory").Required();
  parser_.Add("workers", &workers, "one or more").Required();
  EXPECT_THAT(Parse({"--model-dir=", "--workers="}),
              StatusIs(kInvalid, AllOf(HasSubstr("--model-dir is required"),
                                       HasSubstr("--workers is required"))));
}

TEST_F(ConfigTest, ARequiredOptionMayComeFromTheFile) {
  std::string model;
  parser_.Add("model-dir", &model, "directory").Required();
  EXPECT_THAT(Parse({"--config", File("model-dir: m\n").c_str()}), IsOk());
  EXPECT_EQ(model, "m");
}

TEST_F(ConfigTest, AFileSetsFieldsWithEitherSpellingOfKeys) {
  ASSERT_THAT(ParseText("# comment\n"
                        "listen: 0.0.0.0:7000\n"
                        "page_tokens: 512\n"
                        "grace: 2m\n"
                        "reflection: no\n"
                        "peers:\n"
                        "  - a:1\n"
                        "  - b:2\n"),
              IsOk());
  EXPECT_EQ(config_.listen, "0.0.0.0:7000");
  EXPECT_EQ(config_.page_tokens, 512);
  EXPECT_EQ(config_.grace, 2min);
  EXPECT_FALSE(config_.reflection);
  EXPECT_THAT(config_.peers, ElementsAre("a:1", "b:2"));
}

TEST_F(ConfigTest, AListInAFileMayBeOneLine) {
  ASSERT_THAT(ParseText("peers: a:1,b:2\n"), IsOk());
  EXPECT_THAT(config_.peers, ElementsAre("a:1", "b:2"));
}

TEST_F(ConfigTest, FlagsWinOverTheFile) {
  const std::string& path = File("page-tokens: 512\npages: 7\npeers: [a:1, b:2]\n");
  ASSERT_THAT(Parse({"--page-tokens=1024", "--config", path.c_str(), "--peers=c:3"}), IsOk());
  EXPECT_EQ(config_.page_tokens, 1024);
  EXPECT_EQ(config_.pages, 7);
  EXPECT_THAT(config_.peers, ElementsAre("c:3"));
}

TEST_F(ConfigTest, AnEmptyFileSetsNothing) {
  EXPECT_THAT(ParseText(""), IsOk());
  EXPECT_THAT(ParseText("# only a comment\n"), IsOk());
  EXPECT_EQ(config_.pages, 1024);
}

TEST_F(ConfigTest, ErrorsOfAFileNameFileLineKeyAndValue) {
  EXPECT_THAT(ParseText("listen: a:1\n\npages: lots\n"),
              StatusIs(kInvalid, AllOf(HasSubstr(path_ + ":3: pages: \"lots\""),
                                       EndsWith("expected a whole number, 1 to 268435456"))));
  EXPECT_THAT(ParseText("listen: a:1\npage_tokns: 1\n"),
              StatusIs(kInvalid, path_ + ":2: unknown key page_tokns, did you mean page-tokens?"));
}

TEST_F(ConfigTest, NestedMapsAreRefused) {
  EXPECT_THAT(ParseText("page-tokens:\n  value: 3\n"),
              StatusIs(kInvalid, HasSubstr(":1: page-tokens: found a nested map")));
  EXPECT_THAT(ParseText("network:\n  listen: a:1\n"),
              StatusIs(kInvalid, HasSubstr(":1: unknown key network")));
  EXPECT_THAT(ParseText("peers:\n - a:1\n - {b: 2}\n"),
              StatusIs(kInvalid, HasSubstr(":3: peers: an item of a list must be plain text")));
}

TEST_F(ConfigTest, OtherShapesThanKeyAndValueAreRefused) {
  EXPECT_THAT(ParseText("pages: [1, 2]\n"), StatusIs(kInvalid, HasSubstr("found a list")));
  EXPECT_THAT(ParseText("pages:\n"), StatusIs(kInvalid, HasSubstr("found nothing")));
  EXPECT_THAT(ParseText("- a\n- b\n"), StatusIs(kInvalid, HasSubstr("key: value")));
  EXPECT_THAT(ParseText("just text\n"), StatusIs(kInvalid, HasSubstr("key: value")));
  EXPECT_THAT(ParseText("? [a, b]\n: 1\n"), StatusIs(kInvalid, HasSubstr("plain text")));
}

TEST_F(ConfigTest, AKeyGivenTwiceIsRefusedWhateverItsSpelling) {
  EXPECT_THAT(ParseText("page-tokens: 128\npage_tokens: 256\n"),
              StatusIs(kInvalid, HasSubstr(":2: page-tokens is given twice")));
}

TEST_F(ConfigTest, BrokenYamlIsAnErrorWithItsLine) {
  EXPECT_THAT(ParseText("listen: a:1\npeers: [a, b\n"), StatusIs(kInvalid, HasSubstr(path_ + ":")));
}

TEST_F(ConfigTest, AMissingFileIsNamedAndNothingThatMayStandInIt) {
  parser_.Add("model", &config_.name, "directory of the model").Required();
  EXPECT_THAT(
      Parse({"--config=/nonexistent/x.yaml"}),
      StatusIs(absl::StatusCode::kNotFound, "configuration file: cannot open /nonexistent/x.yaml"));
}

TEST_F(ConfigTest, ADirectoryInPlaceOfAFileIsAnErrorThatNamesIt) {
  const std::string flag = "--config=" + ::testing::TempDir();
  EXPECT_THAT(
      Parse({flag.c_str()}),
      StatusIs(kInvalid, "configuration file: " + ::testing::TempDir() + " is a directory"));
}

TEST_F(ConfigTest, ASecondDocumentIsRefusedNotPassedOver) {
  EXPECT_THAT(ParseText("pages: 7\n---\npages: 8\n"),
              StatusIs(kInvalid, HasSubstr(path_ + ":3: a second document")));
}

TEST_F(ConfigTest, HelpListsGroupsDefaultsLimitsAndUnits) {
  ::testing::internal::CaptureStdout();
  EXPECT_THAT(Parse({"--help"}), IsOkAndHolds(ParseOutcome::kExit));
  const std::string help = ::testing::internal::GetCapturedStdout();
  EXPECT_THAT(help, AllOf(HasSubstr("Tests configuration."), HasSubstr("Network"),
                          HasSubstr("Cache"), HasSubstr("--page-tokens INT"),
                          HasSubstr("default 256; 128 to 4096, a multiple of 128; in tokens"),
                          HasSubstr("default 30s; 0 to 10m"), HasSubstr("cpu, cuda"),
                          HasSubstr("--config FILE")));
}

TEST_F(ConfigTest, VersionIsPrinted) {
  ::testing::internal::CaptureStdout();
  EXPECT_THAT(Parse({"--version"}), IsOkAndHolds(ParseOutcome::kExit));
  EXPECT_EQ(::testing::internal::GetCapturedStdout(),
            std::string("baton-test ") + Version() + "\n");
}

TEST_F(ConfigTest, CheckConfigPrintsWhatFlagsAndFileAmountTo) {
  ::testing::internal::CaptureStdout();
  EXPECT_THAT(Parse({"--check-config", "--page-tokens=512"}), IsOkAndHolds(ParseOutcome::kExit));
  EXPECT_THAT(::testing::internal::GetCapturedStdout(),
              AllOf(HasSubstr("page-tokens = 512\n"), HasSubstr("pages = 1024\n")));
  EXPECT_THAT(Parse({"--check-config", "--page-tokens=1"}), StatusIs(kInvalid));
}

TEST_F(ConfigTest, EverythingThatIsWrongIsToldAtOnce) {
  const std::string flag = "--config=" + File("pages: lots\npage_tokns: 1\nname: [a]\n");
  parser_.Add("model", &config_.device, "directory of the model").Required();
  parser_.Check([](ErrorList& errors) { errors.Add(absl::InvalidArgumentError("a check")); });
  EXPECT_THAT(
      Parse({flag.c_str(), "--grace=-1", "--nme", "x", "surplus", "--device=gpu"}),
      StatusIs(kInvalid,
               AllOf(HasSubstr("9 errors:\n  unknown flag --nme, did you mean "),
                     HasSubstr("\n  unexpected argument \"surplus\"\n"),
                     HasSubstr(":1: pages: \"lots\""), HasSubstr(":2: unknown key page_tokns"),
                     HasSubstr(":3: name: found a list"), HasSubstr("\n  --grace: \"-1\""),
                     HasSubstr("\n  --device: \"gpu\""), HasSubstr("\n  --model is required"),
                     EndsWith("\n  a check"))));
}

TEST_F(ConfigTest, AValueThatIsRefusedIsNotMissingToo) {
  parser_.Add("size", &config_.page_tokens, "of something").Required();
  EXPECT_THAT(Parse({"--size=x"}),
              StatusIs(kInvalid, AllOf(HasSubstr("--size: \"x\""), Not(HasSubstr("required")))));
}

TEST_F(ConfigTest, FilesAreLookedAtOnlyToCheckAndSettingsShownOnlyIfNothingIsWrong) {
  int asked = 0;
  parser_.Inspect([&](ErrorList& errors) {
    ++asked;
    if (config_.pages == 5) errors.Add(absl::NotFoundError("cannot open " + config_.name));
  });
  EXPECT_THAT(Parse({"--pages=5"}), IsOkAndHolds(ParseOutcome::kRun));
  EXPECT_EQ(asked, 0);
  ::testing::internal::CaptureStdout();
  EXPECT_THAT(Parse({"--pages=5", "--check-config", "--page-tokens=1"}),
              StatusIs(kInvalid, AllOf(HasSubstr("2 errors:\n  --page-tokens"),
                                       HasSubstr("\n  cannot open x"))));
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(asked, 1);
}

TEST_F(ConfigTest, DescribeChangedLeavesOutWhatIsAsByDefault) {
  ASSERT_THAT(Parse({"--page-tokens=128", "--peers=a:1,b:2"}), IsOk());
  EXPECT_THAT(parser_.DescribeChanged(), ElementsAre("peers = a:1,b:2", "page-tokens = 128"));
}

TEST_F(ConfigTest, DescribeShowsTheParsedValues) {
  ASSERT_THAT(Parse({"--page-tokens=128", "--peers=a:1,b:2", "--grace=90"}), IsOk());
  EXPECT_THAT(parser_.Describe(),
              ElementsAre("listen = 127.0.0.1:0", "peers = a:1,b:2", "name = x",
                          "reflection = true", "page-tokens = 128", "pages = 1024", "device = cpu",
                          "temperature = 0.5", "grace = 1m30s"));
}

}  // namespace
}  // namespace baton
