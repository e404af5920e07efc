#include "cli/needle/haystack.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/check.h"

namespace baton::cli {
namespace {

using Words = std::vector<std::string>;

const Words kSubjects = {
    "the baker",     "the old gardener",  "a young painter",       "the night watchman",
    "our neighbour", "the ferry captain", "the clockmaker",        "a tailor",
    "the librarian", "the beekeeper",     "a quiet student",       "the astronomer",
    "a fisherman",   "the schoolteacher", "the river guide",       "the mountain climber",
    "the florist",   "an engineer",       "a travelling musician", "the postman"};
const Words kVerbs = {"walked past", "repaired",     "painted",      "remembered",
                      "counted",     "described",    "admired",      "waited near",
                      "cleaned",     "looked for",   "measured",     "wrote a letter about",
                      "sold",        "forgot about", "returned",     "carried",
                      "borrowed",    "visited",      "photographed", "sketched"};
const Words kObjects = {"the wooden bridge",        "a blue bicycle",      "the empty market",
                        "seven copper coins",       "the tall lighthouse", "some fresh bread",
                        "the frozen pond",          "the stone wall",      "the village well",
                        "the railway station",      "the harbour lights",  "a broken radio",
                        "the morning newspaper",    "two heavy books",     "a silver spoon",
                        "a box of old photographs", "a paper lantern",     "an unfinished map",
                        "the garden gate",          "a basket of apples"};
const Words kTails = {"before sunrise",         "after the rain",         "in early spring",
                      "for the second time",    "on a cold evening",      "as the wind rose",
                      "without saying a word",  "under a grey sky",       "with great care",
                      "during the long summer", "at the end of the week", "while the bells rang"};
const Words kCities = {
    "Oslo",   "Lima",    "Cairo",   "Paris",  "Tokyo",    "Quito",   "Delhi",   "Accra",
    "Berlin", "Boston",  "Dublin",  "Geneva", "Havana",   "Jakarta", "Kabul",   "Lagos",
    "Madrid", "Manila",  "Moscow",  "Muscat", "Nairobi",  "Ottawa",  "Prague",  "Riga",
    "Rome",   "Seoul",   "Sofia",   "Sydney", "Santiago", "Taipei",  "Tehran",  "Tripoli",
    "Tunis",  "Vienna",  "Warsaw",  "Zagreb", "Athens",   "Baghdad", "Bamako",  "Bogota",
    "Bruges", "Cardiff", "Chicago", "Dakar",  "Denver",   "Doha",    "Dresden", "Glasgow",
    "Hanoi",  "Houston", "Kigali",  "Krakow", "Helsinki", "Leeds",   "Lisbon",  "London",
    "Lyon",   "Malmo",   "Miami",   "Milan",  "Minsk",    "Munich",  "Naples",  "Osaka",
    "Perth",  "Phoenix", "Porto",   "Pune",   "Reno",     "Seville", "Tampa",   "Shanghai",
    "Turin",  "Utrecht", "Venice",  "Zurich", "Bergen",   "Bilbao",  "Cadiz",   "Cork"};
const Words kAnimals = {
    "ZEBRA",  "OTTER",  "FALCON", "BADGER", "HERON",  "LYNX",   "MARMOT", "PUFFIN", "RAVEN",
    "TAPIR",  "WALRUS", "YAK",    "IBEX",   "GECKO",  "COBRA",  "BISON",  "CONDOR", "DINGO",
    "EGRET",  "FERRET", "GIBBON", "HORNET", "IGUANA", "JACKAL", "KOALA",  "LEMUR",  "MANTIS",
    "NEWT",   "OSPREY", "PANDA",  "QUAIL",  "RHINO",  "STORK",  "TURTLE", "URCHIN", "VIPER",
    "WOMBAT", "XERUS",  "MOOSE",  "ORCA",   "SKUNK",  "SLOTH",  "SWAN",   "TIGER",  "TOUCAN",
    "TROUT",  "WEASEL", "WHALE",  "WOLF",   "CRANE"};
const Words kGreek = {"ALPHA", "BETA",  "GAMMA", "DELTA",   "EPSILON", "ZETA", "ETA",     "THETA",
                      "IOTA",  "KAPPA", "MU",    "LAMBDA",  "NU",      "XI",   "OMICRON", "PI",
                      "RHO",   "SIGMA", "TAU",   "UPSILON", "PHI",     "CHI",  "PSI",     "OMEGA"};

}  // namespace

std::string Needle::BeforePassphrase() const {
  return absl::StrCat("The secret passphrase for ", city, " is");
}

std::string Needle::Sentence() const {
  return absl::StrCat(BeforePassphrase(), " ", passphrase, ".");
}

std::string Needle::Question() const {
  return absl::StrCat("What is the secret passphrase for ", city, "?");
}

const Words& Haystack::Refrains() {
  static const Words refrains = {"The grass is green.",       "The sky is blue.",
                                 "The sun is yellow.",        "Here we go.",
                                 "There and back again.",     "Everyone went home.",
                                 "It rained all afternoon.",  "The road was quiet.",
                                 "The lamps were lit early.", "Nobody noticed the time."};
  return refrains;
}

std::string Haystack::NextSentence() {
  if (Below(5) == 0) return OneOf(Refrains());
  std::string text = OneOf(kSubjects);
  absl::StrAppend(&text, " ", OneOf(kVerbs));
  absl::StrAppend(&text, " ", OneOf(kObjects));
  if (Below(10) < 6) absl::StrAppend(&text, " ", OneOf(kTails));
  absl::StrAppend(&text, ".");
  if (Below(20) < 3) return absl::StrCat("On day ", Below(1000), " ", text);
  text[0] = absl::ascii_toupper(text[0]);
  return text;
}

Needle Haystack::NextNeedle() {
  BATON_CHECK(cities_.size() < kCities.size()) << "every city has its passphrase";
  Needle needle;
  do {
    needle.city = OneOf(kCities);
  } while (!cities_.insert(needle.city).second);
  needle.passphrase = OneOf(kAnimals);
  absl::StrAppendFormat(&needle.passphrase, "-%04d-", Below(10000));
  needle.passphrase += OneOf(kGreek);
  return needle;
}

}  // namespace baton::cli
