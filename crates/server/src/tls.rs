//! TLS for connections by TCP.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use tokio_rustls::TlsAcceptor;

/// A certificate, its key, and the accepted client certificates.
#[derive(Clone)]
pub struct Tls {
    acceptor: TlsAcceptor,
}

/// The reason why files cannot be used for TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or is not PEM.
    #[error("{}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The certificate or the key is not accepted.
    #[error("{} with {}: {reason}", certificate.display(), key.display())]
    Pair {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// The reason.
        reason: rustls::Error,
    },
}

impl Tls {
    /// Reads PEM files: a certificate with its chain, its private key, and the authorities of clients' certificates. With authorities, a
    /// client needs a certificate that one of them signed.
    ///
    /// # Errors
    /// If a file cannot be read, or its content is not accepted.
    pub fn read(certificate: &Path, key: &Path, client_ca: Option<&Path>) -> Result<Self, TlsError> {
        let chain = certificates(certificate)?;
        let private_key = PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable(key, &error))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let pair = |reason| TlsError::Pair { certificate: certificate.into(), key: key.into(), reason };
        let config = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let config = config.with_safe_default_protocol_versions().map_err(pair)?;
        let config = match client_ca {
            None => config.with_no_client_auth(),
            Some(authorities) => config.with_client_cert_verifier(verifier(authorities, provider)?),
        };
        let config = config.with_single_cert(chain, private_key).map_err(pair)?;
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)) })
    }

    /// Accepts TLS on a socket.
    pub(crate) fn acceptor(&self) -> &TlsAcceptor {
        &self.acceptor
    }
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

/// The certificates of a file: at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match all.map_err(|error| unreadable(path, &error))? {
        all if all.is_empty() => Err(unreadable(path, &"there is no certificate in PEM")),
        all => Ok(all),
    }
}

fn verifier(
    path: &Path,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn rustls::server::danger::ClientCertVerifier>, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| unreadable(path, &error))?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
    verifier.map_err(|error| unreadable(path, &error))
}

fn unreadable(path: &Path, reason: &impl ToString) -> TlsError {
    TlsError::File { path: path.into(), reason: reason.to_string() }
}
