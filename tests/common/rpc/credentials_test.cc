#include "common/rpc/credentials.h"

#include <thread>

#include "common/read_file.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "common/rpc/worker_control_client.h"
#include "gmock/gmock.h"
#include "tests/common/rpc/fake_services.h"
#include "tests/testing/certificates.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/test_path.h"

namespace baton::rpc {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;
using ::baton::testing::CertificateAuthority;
using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class CredentialsTest : public ::testing::Test {
 protected:
  CredentialsTest() {
    control_.get_info = [](auto*, auto*, auto* reactor) { reactor->Finish(grpc::Status::OK); };
  }
  ~CredentialsTest() override { fs::remove_all(folder_); }

  void Serve(const tls::CertificateFiles& files) {
    BATON_ASSERT_OK_AND_ASSIGN(const Credentials credentials, LoadCredentials({.files = files}));
    Serve(credentials.server);
  }
  void Serve(std::shared_ptr<grpc::ServerCredentials> credentials) {
    BATON_ASSERT_OK_AND_ASSIGN(server_, GrpcServer::Start({.listen = "127.0.0.1:0",
                                                           .services = {&control_},
                                                           .credentials = std::move(credentials)}));
  }
  absl::Status Ask(const Credentials& credentials) const {
    return WorkerControlClient(AddressOf(*server_), credentials).GetInfo(2s).status();
  }
  absl::Status AskOn(std::shared_ptr<grpc::Channel> channel) const {
    return WorkerControlClient(AddressOf(*server_), std::move(channel)).GetInfo(2s).status();
  }
  // A client with what LoadCredentials would not take.
  Credentials Client(const std::string& ca, const tls::CertificateFiles& own = {}) const {
    grpc::SslCredentialsOptions options;
    options.pem_root_certs = ca;
    if (!own.empty()) {
      options.pem_cert_chain = *ReadFile(own.certificate);
      options.pem_private_key = *ReadFile(own.key);
    }
    return {.client = grpc::SslCredentials(options)};
  }

  const fs::path folder_ = testing::TestPath("credentials");
  CertificateAuthority ca_, stranger_;
  FakeWorkerControl control_;
  std::unique_ptr<GrpcServer> server_;
};

TEST_F(CredentialsTest, BothEndsOfOneCaUnderstandEachOther) {
  Serve(ca_.Issue(folder_ / "server"));
  BATON_ASSERT_OK_AND_ASSIGN(const Credentials peer,
                             LoadCredentials({.files = ca_.Issue(folder_ / "peer")}));
  EXPECT_THAT(Ask(peer), IsOk());
  EXPECT_THAT(Ask(peer), IsOk());
}

// That no handshake may fail later is what files are checked for: see certificate_files.h.
TEST_F(CredentialsTest, CertificatesThatAreTakenCanBeUsed) {
  for (const char* key : {"RSA-2048", "P-384", "P-521"}) {
    const tls::CertificateFiles files = ca_.Issue(folder_ / key, {.key = key});
    Serve(files);
    BATON_ASSERT_OK_AND_ASSIGN(const Credentials peer, LoadCredentials({.files = files}));
    EXPECT_THAT(Ask(peer), IsOk()) << key;
  }
}

TEST_F(CredentialsTest, AServerTakesOnlyClientsThatItsCaVouchesFor) {
  Serve(ca_.Issue(folder_ / "server"));
  const auto refused = StatusIs(absl::StatusCode::kUnavailable, HasSubstr(AddressOf(*server_)));
  EXPECT_THAT(Ask({}), refused) << "plain text";
  EXPECT_THAT(Ask(Client(ca_.Pem())), refused) << "no certificate";
  EXPECT_THAT(Ask(Client(ca_.Pem(), stranger_.Issue(folder_ / "stranger"))), refused);
  EXPECT_THAT(Ask(Client(ca_.Pem(), ca_.Issue(folder_ / "expired", {.valid = -60s}))), refused);
  EXPECT_THAT(Ask(Client(ca_.Pem(), ca_.Issue(folder_ / "server-only", {.usage = "serverAuth"}))),
              refused);
  EXPECT_THAT(Ask(Client(ca_.Pem(), ca_.Issue(folder_ / "peer"))), IsOk());
}

TEST_F(CredentialsTest, WhoCannotReachAWorkerHearsWhyInFewWords) {
  Serve(ca_.Issue(folder_ / "server"));
  const std::string address = AddressOf(*server_);
  const absl::Status closed = Ask({});
  EXPECT_THAT(closed, StatusIs(absl::StatusCode::kUnavailable,
                               AllOf(StartsWith(address), HasSubstr("--tls-cert-file"),
                                     Not(HasSubstr("last error")))));
  server_.reset();
  EXPECT_EQ(WorkerControlClient(address).GetInfo(2s).status().message(),
            address + ": Failed to connect to remote host: Connection refused");
}

TEST_F(CredentialsTest, AClientTakesOnlyTheServerThatItMeans) {
  BATON_ASSERT_OK_AND_ASSIGN(const Credentials peer,
                             LoadCredentials({.files = ca_.Issue(folder_ / "peer")}));
  Serve(stranger_.Issue(folder_ / "stranger"));
  EXPECT_THAT(Ask(peer), StatusIs(absl::StatusCode::kUnavailable,
                                  AllOf(HasSubstr(AddressOf(*server_)),
                                        HasSubstr("certificate verify failed"))));
  Serve(ca_.Issue(folder_ / "named", {.names = "DNS:example.org,IP:127.0.0.2"}));
  EXPECT_THAT(Ask(peer), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("Hostname")));
  Serve(Credentials().server);
  EXPECT_THAT(Ask(peer), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("handshake failed")));
}

TEST_F(CredentialsTest, AServerOfManyAddressesHasOneName) {
  Serve(ca_.Issue(folder_ / "worker", {.names = "DNS:worker.baton"}));
  const tls::CertificateFiles peer = ca_.Issue(folder_ / "peer");
  BATON_ASSERT_OK_AND_ASSIGN(const Credentials named,
                             LoadCredentials({.files = peer, .server_name = "worker.baton"}));
  EXPECT_THAT(Ask(named), IsOk());
  BATON_ASSERT_OK_AND_ASSIGN(const Credentials other,
                             LoadCredentials({.files = peer, .server_name = "router.baton"}));
  EXPECT_THAT(Ask(other), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("Hostname")));
}

TEST_F(CredentialsTest, WhereOnlyTheServerShowsACertificateClientsNeedNone) {
  tls::CertificateFiles files = ca_.Issue(folder_ / "server", {.usage = "serverAuth"});
  files.ca.clear();
  BATON_ASSERT_OK_AND_ASSIGN(auto credentials, LoadServerCredentials(files));
  Serve(std::move(credentials));
  EXPECT_THAT(Ask(Client(ca_.Pem())), IsOk());
  EXPECT_THAT(Ask(Client(stranger_.Pem())), StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(CredentialsTest, RenewedFilesAreForNewConnections) {
  Serve(ca_.Issue(folder_ / "server"));
  BATON_ASSERT_OK_AND_ASSIGN(const Credentials peer,
                             LoadCredentials({.files = ca_.Issue(folder_ / "peer")}));
  const WorkerControlClient before(AddressOf(*server_), peer);
  EXPECT_THAT(before.GetInfo(2s), IsOk());

  // Of another CA, so that old and new can be told apart.
  const tls::CertificateFiles renewed = stranger_.Issue(folder_ / "server");
  stranger_.Issue(folder_ / "peer");
  const Credentials knows_new = Client(stranger_.Pem(), renewed);
  const auto deadline = std::chrono::steady_clock::now() + 20s;
  while (!Ask(knows_new).ok() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(50ms);
  }
  EXPECT_THAT(Ask(knows_new), IsOk());
  EXPECT_THAT(before.GetInfo(2s), IsOk()) << "a connection that stood";
  EXPECT_THAT(Ask(Client(ca_.Pem(), ca_.Issue(folder_ / "old"))),
              StatusIs(absl::StatusCode::kUnavailable));

  absl::Status asked;
  do {  // on a connection of its own: of this address and these credentials there is one already
    asked = AskOn(MakeChannel(AddressOf(*server_), ChannelKind::kBulk, peer));
  } while (!asked.ok() && std::chrono::steady_clock::now() < deadline);
  EXPECT_THAT(asked, IsOk());
}

TEST_F(CredentialsTest, AllFilesAreNamedOrNone) {
  EXPECT_THAT(LoadCredentials({}), IsOk());
  EXPECT_THAT(LoadCredentials({.server_name = "worker.baton"}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("tls-cert-file"), HasSubstr("with tls-server-name"))));
  tls::CertificateFiles files = ca_.Issue(folder_ / "peer");
  files.key.clear();
  EXPECT_THAT(LoadCredentials({.files = files}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("tls-key-file"), HasSubstr("all three or none"))));
  files.key = folder_ / "nowhere";
  EXPECT_THAT(LoadCredentials({.files = files}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("nowhere")));
}

}  // namespace
}  // namespace baton::rpc
