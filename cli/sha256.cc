#include "cli/sha256.h"

#include <openssl/evp.h>

#include "absl/strings/escaping.h"
#include "common/base/check.h"

namespace baton::cli {

std::string Sha256(absl::string_view text) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  BATON_CHECK(EVP_Digest(text.data(), text.size(), digest, &size, EVP_sha256(), nullptr) == 1);
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(digest), size));
}

}  // namespace baton::cli
