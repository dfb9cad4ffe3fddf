//! Keys and certificates in files: PEM. A key's file has its certificate as well, and only its owner may read
//! it.

use std::io;
use std::path::{Path, PathBuf};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::secret;

/// Who a proxy is: the hash of its certificate.
pub type Identity = [u8; 32];

/// Most bytes of a file.
const LARGEST: u64 = 64 << 10;

/// A file that can't be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// It can't be read or written.
    #[error("`{0}`: {1}")]
    File(PathBuf, io::Error),
    /// Others can read it.
    #[error(
        "`{0}`: others can read this key (mode {1:o}): `chmod 600` it, and make new ones if somebody has"
    )]
    Exposed(PathBuf, u32),
    /// It has something else.
    #[error("`{0}`: {1} expected, in PEM, as `ropewalkd keys pair` writes it")]
    Format(PathBuf, &'static str),
    /// `rustls` can't use it.
    #[error("{0}")]
    Tls(#[from] rustls::Error),
    /// No key can be made.
    #[error("making a key: {0}")]
    Make(#[from] rcgen::Error),
}

/// A key with its certificate.
#[derive(Debug)]
pub(super) struct Key {
    pub certificate: CertificateDer<'static>,
    pub secret: PrivateKeyDer<'static>,
}

impl Key {
    pub fn load(path: &Path) -> Result<Key, KeyError> {
        let text = secret::read(path, LARGEST).map_err(|error| match error {
            secret::ReadError::Unreadable(error) => KeyError::File(path.into(), error),
            secret::ReadError::Exposed(mode) => KeyError::Exposed(path.into(), mode),
        })?;
        let wrong = |_| KeyError::Format(path.into(), "a private key and its certificate");
        let certificate = CertificateDer::from_pem_slice(text.as_bytes()).map_err(wrong)?;
        let secret = PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(wrong)?;
        Ok(Key { certificate, secret })
    }
}

/// A certificate's file.
pub(crate) fn certificate(path: &Path) -> Result<CertificateDer<'static>, KeyError> {
    let read = secret::read_text(path, LARGEST);
    let text = read.map_err(|error| KeyError::File(path.into(), error))?;
    CertificateDer::from_pem_slice(text.as_bytes())
        .map_err(|_| KeyError::Format(path.into(), "a certificate"))
}

/// Makes a key and its certificate: `NAME.key`, for its owner alone, and `NAME.pub`, for the other side.
///
/// # Errors
/// If a file is there already, or can't be written.
pub fn generate(folder: &Path, name: &str) -> Result<[PathBuf; 2], KeyError> {
    let key = rcgen::KeyPair::generate()?;
    let parameters = rcgen::CertificateParams::new(vec![super::NAME.to_string()])?;
    let certificate = parameters.self_signed(&key)?.pem();
    let (secret, public) = (folder.join(format!("{name}.key")), folder.join(format!("{name}.pub")));
    let both = key.serialize_pem() + &certificate;
    secret::write(&secret, both.as_bytes(), 0o600).map_err(|error| KeyError::File(secret.clone(), error))?;
    secret::write(&public, certificate.as_bytes(), 0o644)
        .map_err(|error| KeyError::File(public.clone(), error))?;
    Ok([secret, public])
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::super::{Acceptor, Connector};
    use super::*;

    #[test]
    fn keys_are_for_their_owner_and_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        generate(folder.path(), "gateway").unwrap();
        generate(folder.path(), "proxy").unwrap();
        assert!(matches!(generate(folder.path(), "proxy"), Err(KeyError::File(..))));
        let mode = |name: &str| fs::metadata(at(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("gateway.key"), mode("gateway.pub")), (0o600, 0o644));
        let first = Acceptor::load(&at("gateway.key"), &[at("proxy.pub")]).unwrap();
        assert_eq!(first, Acceptor::load(&at("gateway.key"), &[at("proxy.pub")]).unwrap());
        assert_ne!(first, Acceptor::load(&at("gateway.key"), &[at("gateway.pub")]).unwrap());
        Connector::load(&at("proxy.key"), &at("gateway.pub")).unwrap();
        let refused = |key: &str, peer: &str| Connector::load(&at(key), &at(peer)).unwrap_err().to_string();
        assert!(refused("nothing", "gateway.pub").contains("nothing"));
        assert!(refused("proxy.key", "nothing").contains("nothing"));
        fs::write(at("empty"), "").unwrap();
        assert!(refused("proxy.key", "empty").contains("a certificate expected"));
        fs::set_permissions(at("proxy.key"), Permissions::from_mode(0o640)).unwrap();
        assert!(refused("proxy.key", "gateway.pub").contains("others can read this key (mode 640)"));
        fs::set_permissions(at("empty"), Permissions::from_mode(0o600)).unwrap();
        assert!(refused("empty", "gateway.pub").contains("a private key and its certificate expected"));
    }
}
