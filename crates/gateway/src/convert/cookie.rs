//! The secret that a client shows a converter (RFC 8803, section 6.2.7), configured at both ends.
//!
//! It shows that the client may use the converter. Without TLS around it, whoever sees it can show it too.

use std::io;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::secret;

/// Fewest and most bytes of a cookie.
const BYTES: std::ops::RangeInclusive<usize> = 16..=128;

/// A cookie. It isn't shown in logs.
#[derive(Clone, PartialEq, Eq)]
pub struct Cookie(Vec<u8>);

impl std::fmt::Debug for Cookie {
    /// Its digest's beginning: enough to tell two apart, of no use to others.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let digest = Sha256::digest(&self.0);
        write!(f, "Cookie({:02x}{:02x}{:02x}{:02x})", digest[0], digest[1], digest[2], digest[3])
    }
}

/// A cookie's file that can't be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CookieError {
    /// It can't be read.
    #[error("can't read the cookie: {0}")]
    Unreadable(std::io::Error),
    /// Others can read it.
    #[error("others can read the cookie (mode {0:o}): `chmod 600` it, and make a new one if somebody has")]
    Exposed(u32),
    /// Not hexadecimal digits of the right number.
    #[error("the cookie's file has {0}; expected {least} to {most} bytes as hexadecimal digits, a multiple \
             of 4 bytes", least = BYTES.start(), most = BYTES.end())]
    Format(String),
}

impl Cookie {
    /// From bytes: 16 to 128, a multiple of 4.
    pub fn new(bytes: Vec<u8>) -> Option<Cookie> {
        (BYTES.contains(&bytes.len()) && bytes.len().is_multiple_of(4)).then_some(Cookie(bytes))
    }

    /// From a file with hexadecimal digits, which only its owner may read.
    ///
    /// # Errors
    /// If the file can't be read, others can read it, or it has something else.
    pub fn load(path: &Path) -> Result<Cookie, CookieError> {
        let text = secret::read(path, 4096).map_err(|error| match error {
            secret::ReadError::Unreadable(error) => CookieError::Unreadable(error),
            secret::ReadError::Exposed(mode) => CookieError::Exposed(mode),
        })?;
        Cookie::from_hex(text.trim())
    }

    /// From hexadecimal digits.
    ///
    /// # Errors
    /// If they are others, or of another number.
    pub fn from_hex(text: &str) -> Result<Cookie, CookieError> {
        let digits: Option<Vec<u8>> =
            text.chars().map(|digit| digit.to_digit(16).map(|digit| digit as u8)).collect();
        let Some(digits) = digits else {
            return Err(CookieError::Format("something other than hexadecimal digits".into()));
        };
        let (pairs, odd) = digits.as_chunks::<2>();
        let cookie = Cookie::new(pairs.iter().map(|[high, low]| high << 4 | low).collect());
        let count = digits.len();
        cookie.filter(|_| odd.is_empty()).ok_or_else(|| CookieError::Format(format!("{count} digits")))
    }

    /// Makes one at random, in a new file that only its owner may read.
    ///
    /// # Errors
    /// If the file is there already, or can't be written.
    pub fn generate(path: &Path) -> io::Result<Cookie> {
        let cookie = Cookie((0..4).flat_map(|_| ropewalk_os::entropy::random().to_ne_bytes()).collect());
        secret::write(path, format!("{}\n", cookie.to_hex()).as_bytes(), 0o600)?;
        Ok(cookie)
    }

    /// As hexadecimal digits.
    pub fn to_hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Its bytes, for a Cookie TLV.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether a client showed this one. How long it takes doesn't depend on how much of it is right.
    //= RFC 8803 6.2.7-a
    pub fn is(&self, shown: &[u8]) -> bool {
        Sha256::digest(&self.0) == Sha256::digest(shown)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::Cookie;

    #[test]
    fn a_cookie_is_read_from_a_file_of_its_owners() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cookie");
        let load = |text: &str, mode: u32| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            Cookie::load(&path).map_err(|error| error.to_string())
        };
        let digits = "00112233445566778899aabbccddeeff";
        let cookie = load(&format!("{digits}\n"), 0o600).unwrap();
        assert_eq!((cookie.bytes()[15], cookie.to_hex().as_str()), (0xff, digits));
        assert!(cookie.is(cookie.bytes()) && !cookie.is(&[0; 16]) && !cookie.is(b""));
        assert!(!format!("{cookie:?}").contains("0011"));
        for (text, mode, expected) in [
            (digits, 0o644, "others can read the cookie (mode 644)"),
            (&digits[1..], 0o600, "31 digits"),
            (&digits[2..], 0o600, "30 digits"),
            ("", 0o600, "0 digits"),
            ("secret", 0o600, "other than hexadecimal"),
            ("0011é", 0o600, "other than hexadecimal"),
        ] {
            let error = load(text, mode).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        fs::remove_file(&path).unwrap();
        let made = Cookie::generate(&path).unwrap();
        assert!(Cookie::load(&path).unwrap() == made && made.bytes().len() == 32);
        assert!(Cookie::generate(&path).is_err(), "it is overwritten");
        fs::remove_file(&path).unwrap();
        assert!(Cookie::load(&path).unwrap_err().to_string().contains("can't read the cookie"));
    }
}
