//! TLS, and the commands that clients may use.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flashwright_server::protocol::AllowedCommands;
use flashwright_server::{Counter, Options, Server, Tls};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::setup::{Client, address, assert_counter, options, serve_in_memory};

/// An authority, and the certificates that it signed: PEM files in a directory.
struct Files(tempfile::TempDir);

impl Files {
    /// A certificate for `localhost` and one for a client.
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let file = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
        file("ca.pem", &authority.pem());
        for name in ["localhost", "client"] {
            let key = KeyPair::generate().unwrap();
            let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
            file(&format!("{name}.pem"), &params.signed_by(&key, &authority).unwrap().pem());
            file(&format!("{name}.key"), &key.serialize_pem());
        }
        Self(directory)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn tls(&self, client_ca: Option<&Path>) -> Tls {
        Tls::read(&self.path("localhost.pem"), &self.path("localhost.key"), client_ca).unwrap()
    }

    fn server(&self, client_ca: Option<&Path>) -> Server {
        let listen = vec!["0.0.0.0:0".parse().unwrap()];
        serve_in_memory(Options { listen, tls: Some(self.tls(client_ca)), ..options() })
    }

    /// The replies to `requests` of a client that trusts the authority.
    fn exchange(&self, server: &Server, requests: &[u8], with_certificate: bool) -> std::io::Result<String> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.path("ca.pem")).unwrap()).unwrap();
        let config =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_root_certificates(roots);
        let config = match with_certificate {
            false => config.with_no_client_auth(),
            true => {
                let chain = vec![CertificateDer::from_pem_file(self.path("client.pem")).unwrap()];
                let key = PrivateKeyDer::from_pem_file(self.path("client.key")).unwrap();
                config.with_client_auth_cert(chain, key).unwrap()
            }
        };
        let connection = ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap();
        let socket = TcpStream::connect(("127.0.0.1", address(server).port()))?;
        let mut stream = StreamOwned::new(connection, socket);
        stream.write_all(requests)?;
        let mut replies = String::new();
        // Fails if the server does not close the TLS session in order.
        stream.read_to_string(&mut replies)?;
        Ok(replies)
    }
}

const REQUESTS: &[u8] = b"set key 0 0 5\r\nvalue\r\nget key\r\nquit\r\n";
const REPLIES: &str = "STORED\r\nVALUE key 0 5\r\nvalue\r\nEND\r\n";

#[test]
fn tls_client_is_served_and_a_plain_one_is_not() {
    let files = Files::new();
    let server = files.server(None);
    assert_eq!(files.exchange(&server, REQUESTS, false).unwrap(), REPLIES);
    let mut plain = Client::connect(([127, 0, 0, 1], address(&server).port()).into());
    plain.send(b"version\r\n");
    let received = plain.receive_all();
    assert!(!received.starts_with(b"VERSION"), "{received:?}");
    assert_counter(&server, Counter::ssl_handshake_errors, 1);
}

#[test]
fn large_value_is_exchanged_by_tls() {
    let files = Files::new();
    let server = files.server(None);
    let value: String = (0..300_000).map(|place| char::from(b'a' + (place % 23) as u8)).collect();
    let requests = format!("set a 3 0 300000\r\n{value}\r\nget a\r\nget a b\r\nquit\r\n");
    let replies = files.exchange(&server, requests.as_bytes(), false).unwrap();
    let found = format!("VALUE a 3 300000\r\n{value}\r\nEND\r\n");
    assert!(replies == format!("STORED\r\n{found}{found}"), "{replies:.100}");
}

#[test]
fn client_without_a_certificate_of_the_authority_is_refused() {
    let (files, other_files) = (Files::new(), Files::new());
    let server = files.server(Some(&files.path("ca.pem")));
    assert_eq!(files.exchange(&server, REQUESTS, true).unwrap(), REPLIES);
    files.exchange(&server, REQUESTS, false).unwrap_err();
    std::fs::copy(files.path("ca.pem"), other_files.path("ca.pem")).unwrap();
    other_files.exchange(&server, REQUESTS, true).unwrap_err();
    assert_counter(&server, Counter::ssl_handshake_errors, 2);
}

#[test]
fn wrong_files_are_reported_by_path() {
    let files = Files::new();
    let (certificate, key) = (files.path("localhost.pem"), files.path("localhost.key"));
    for (certificate, key, named) in [
        (&files.path("none.pem"), &key, "none.pem: "),
        (&certificate, &files.path("none.key"), "none.key: "),
        (&key, &key, "localhost.key: there is no certificate"),
        (&certificate, &files.path("client.key"), "localhost.pem with "),
    ] {
        let error = Tls::read(certificate, key, None).unwrap_err().to_string();
        assert!(error.contains(named), "{error}");
    }
}

#[test]
fn command_that_is_not_allowed_is_refused_and_changes_nothing() {
    let allowed = AllowedCommands::new(&["get", "add", "version"]).unwrap();
    let server = serve_in_memory(Options { allowed_commands: Some(allowed), ..options() });
    let mut client = Client::of(&server);
    assert_eq!(client.line("add a 0 0 1\r\n1"), "STORED");
    assert_eq!(client.line("set a 0 0 1\r\n2"), "CLIENT_ERROR set not allowed");
    assert_eq!(client.line("set a 0 0 1 noreply\r\n2"), "");
    let large = "x".repeat(2 << 20);
    assert_eq!(client.line(&format!("set a 0 0 {}\r\n{large}", large.len())), "CLIENT_ERROR set not allowed");
    assert_eq!(client.line("flush_all"), "CLIENT_ERROR flush_all not allowed");
    assert_eq!(client.line("stats"), "CLIENT_ERROR stats not allowed");
    assert_eq!(client.line("md a"), "CLIENT_ERROR md not allowed");
    assert_eq!(client.line("get a"), "VALUE a 0 1\r\n1\r\nEND");
}
