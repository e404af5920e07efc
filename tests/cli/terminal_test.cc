#include "cli/terminal.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton::cli {
namespace {

using std::chrono::duration;

TEST(TerminalTest, TablesAlignNumbersRightAndTextLeft) {
  Table table({"name", "ms"});
  table.AddRow({"a", "1.5"});
  table.AddRow({"longer", "120"});
  EXPECT_EQ(table.ToString(),
            "name     ms\n"
            "a       1.5\n"
            "longer  120\n");
}

TEST(TerminalTest, TablesCountCharactersNotBytes) {
  Table table({"time", "x"});
  table.AddRow({"5 µs", "a"});
  table.AddRow({"10 s", "b"});
  EXPECT_EQ(table.ToString(), "time  x\n5 µs  a\n10 s  b\n");
}

TEST(TerminalTest, ProgressShowsShareRateAndTimeLeft) {
  EXPECT_EQ(ProgressLine("bench", "requests", 25, 100, duration<double>(5), 100),
            "bench  [#######-----------------------]  25/100 requests  5.0/s  ETA 15.00 s");
  EXPECT_EQ(ProgressLine("load", "pages", 3, 0, duration<double>(2), 100), "load  3 pages  1.5/s");
  EXPECT_EQ(ProgressLine("waiting", "", 0, 0, duration<double>(2), 100), "waiting  2.00 s");
  EXPECT_LE(ProgressLine("a long label", "requests", 1, 9, duration<double>(1), 20).size(), 20u);
}

TEST(TerminalTest, ColourIsLeftOutWhereItIsNotWanted) {
  EXPECT_EQ(Styled("x", Style::kRed, false), "x");
  EXPECT_EQ(Styled("x", Style::kRed, true), "\033[31mx\033[0m");
  EXPECT_EQ(Styled("x", Style::kPlain, true), "x");
}

TEST(TerminalTest, NoCommandGetsThrough) {
  EXPECT_EQ(Harmless("a\tb\n 5 µs 😀"), "a\tb\n 5 µs 😀");
  EXPECT_EQ(Harmless("\033[31mx\r\x7f\a"), "[31mx");
  EXPECT_EQ(Harmless("\xc2\x9b"
                     "2J\xc2\x80\xc2\xa0"),
            "2J\xc2\xa0")
      << "C1, as UTF-8";
  EXPECT_EQ(Harmless("\x9b"
                     "2J\xe2\x82"),
            "2J")
      << "C1 in 8 bits, and half a character";
}

TEST(TerminalTest, ANameIsOneShortLine) {
  EXPECT_EQ(HarmlessName("prefill-0@gpu7.example"), "prefill-0@gpu7.example");
  EXPECT_EQ(HarmlessName("a\nb\tc\033[2J"), "a b c[2J");
  EXPECT_EQ(HarmlessName(std::string(80, 'x')), std::string(80, 'x'));
  EXPECT_EQ(HarmlessName("µ" + std::string(10'000, 'x')), "µ" + std::string(78, 'x') + "…");
}

TEST(TerminalTest, QuantitiesAreShort) {
  EXPECT_EQ(HumanBytes(0), "0 B");
  EXPECT_EQ(HumanBytes(1234), "1.23 kB");
  EXPECT_EQ(HumanBytes(999'999), "1.00 MB");
  EXPECT_EQ(HumanBytes(12'300'000'000), "12.3 GB");
  EXPECT_EQ(Counted(1, "decode worker"), "1 decode worker");
  EXPECT_EQ(Counted(0, "decode worker"), "0 decode workers");
  EXPECT_EQ(HumanDuration(duration<double>(0.00085)), "850 µs");
  EXPECT_EQ(HumanDuration(duration<double>(0.0123)), "12.3 ms");
  EXPECT_EQ(HumanDuration(duration<double>(4.56)), "4.56 s");
  EXPECT_EQ(HumanDuration(duration<double>(125)), "2m05s");
}

}  // namespace
}  // namespace baton::cli
