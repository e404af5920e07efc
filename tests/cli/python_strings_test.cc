#include "cli/python_strings.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace baton::cli {
namespace {

using baton::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

absl::flat_hash_map<std::string, std::string> Strings(absl::string_view source) {
  const auto strings = TopLevelStrings(source);
  EXPECT_TRUE(strings.ok()) << strings.status();
  return strings.ok() ? *strings : absl::flat_hash_map<std::string, std::string>();
}

TEST(PythonStringsTest, ReadsEveryKindOfLiteral) {
  EXPECT_THAT(Strings(R"py(
a = "double"
b='single'
c: str = """three
lines "quoted"
"""
d = r'raw \n'
e = "x" 'y' \
    "z"
F = (
    "one\n"  # with a comment's "quote
    "two"
)
g = '''it's'''
)py"),
              UnorderedElementsAre(Pair("a", "double"), Pair("b", "single"),
                                   Pair("c", "three\nlines \"quoted\"\n"), Pair("d", "raw \\n"),
                                   Pair("e", "xyz"), Pair("F", "one\ntwo"), Pair("g", "it's")));
}

TEST(PythonStringsTest, UndoesEscapesAsPythonDoes) {
  EXPECT_THAT(Strings(R"py(a = "\t\\\"\'\x41\u00e9\U0001F600\q\
end"
b = "\N{DASH}"
c = "\101"
d = "\xzz")py"),
              UnorderedElementsAre(Pair("a", "\t\\\"'Aé😀\\qend")));
}

TEST(PythonStringsTest, ReadsDictionariesOfStrings) {
  EXPECT_THAT(Strings(R"py(
a = {"k": "v", 'l': ("one "
     "two"),
     "m": "",  # with a comment
}
b: Dict[str, str] = {}
c: Dict[str, str] = {"k": "first"}
c = {"l": "last"}
d = "after"
)py"),
              UnorderedElementsAre(Pair("a[k]", "v"), Pair("a[l]", "one two"), Pair("a[m]", ""),
                                   Pair("c[l]", "last"), Pair("d", "after")));
}

TEST(PythonStringsTest, LeavesOutWhatIsNotAPlainString) {
  EXPECT_THAT(Strings(R"py(
a = f"{x}"
b = b"bytes"
c = "sum" + other
d = call("x")
e = {"k": 1, "l": "v"}
f = ("x", "y")
g == "no assignment"
import json
def function():
    local = "inside"
class C: name = "x"
)py"),
              UnorderedElementsAre());
}

TEST(PythonStringsTest, IsNotFooledByQuotesElsewhere) {
  EXPECT_THAT(Strings("\"\"\"doc\na = 'in a docstring'\n\"\"\"\n# don't\nb = 'x'\n"),
              UnorderedElementsAre(Pair("b", "x")));
}

TEST(PythonStringsTest, OfTwoAssignmentsTheLastCounts) {
  EXPECT_THAT(Strings("a = 'x'\na = 'y'\nb = 'x'\nb = 1\n"), UnorderedElementsAre(Pair("a", "y")));
}

TEST(PythonStringsTest, NamesTheLineOfAStringWithoutAnEnd) {
  EXPECT_THAT(TopLevelStrings("a = 'x'\n\nb = 'y\n"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("line 3")));
  EXPECT_THAT(TopLevelStrings("\"\"\""),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no end")));
  EXPECT_THAT(TopLevelStrings("a = '\\"), StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace baton::cli
