//! Ed25519 keys (RFC 8032) and their files.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use rustix::rand::{GetRandomFlags, getrandom};

use crate::Digest;

/// Bytes of a seed and of a public key.
const LENGTH: usize = 32;

/// The DER of a public key in front of its 32 bytes (RFC 8410 section 4).
const DER_PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

const PEM_BEGIN: &str = "-----BEGIN PUBLIC KEY-----\n";
const PEM_END: &str = "\n-----END PUBLIC KEY-----\n";

/// A signing key. Its file holds the 32 bytes of the seed and nothing else, readable by its owner only.
pub struct SecretKey(SigningKey);

/// The key that verifies. Its file is the PEM that openssl reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey(VerifyingKey);

/// Why a key cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file system refused.
    #[error("key {path}: cannot {step}")]
    Io {
        /// What was tried.
        step: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// Not a file of 32 bytes.
    #[error("key {0}: a signing key is a regular file of {LENGTH} bytes")]
    NotASeed(PathBuf),
    /// Others could have read or replaced it.
    #[error("key {path}: its mode is {mode:04o}; only its owner may have access (chmod 600)")]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Whoever gets the run would get the key.
    #[error("key {path}: it lies in the run directory {run}; keep it elsewhere")]
    InRun {
        /// The file.
        path: PathBuf,
        /// The run.
        run: PathBuf,
    },
    /// Not the PEM of an Ed25519 public key.
    #[error("not an Ed25519 public key in PEM")]
    NotAPublicKey,
}

impl SecretKey {
    /// Makes a key and its file, which must not exist. It has its name only when it is whole.
    pub fn generate(path: &Path) -> Result<SecretKey, KeyError> {
        let mut seed = [0; LENGTH];
        let got = getrandom(&mut seed, GetRandomFlags::empty());
        // Linux never returns less of up to 256 bytes (getrandom(2)).
        if got.map_err(|error| at("get random bytes for", path)(error.into()))? != LENGTH {
            return Err(at("get random bytes for", path)(io::ErrorKind::UnexpectedEof.into()));
        }
        let draft = path.with_extension(format!("{}.new", std::process::id()));
        let mut options = OpenOptions::new();
        let mut file =
            options.write(true).create_new(true).mode(0o600).open(&draft).map_err(at("create", &draft))?;
        let made = file.write_all(&seed).and_then(|()| file.sync_all()).map_err(at("write", &draft));
        let named = made.and_then(|()| fs::hard_link(&draft, path).map_err(at("create", path)));
        let removed = fs::remove_file(&draft).map_err(at("remove", &draft));
        named.and(removed)?;
        Ok(SecretKey(SigningKey::from_bytes(&seed)))
    }

    /// Reads a key for signing the receipt of `run`, within which it must not lie; none: a run that is yet to be made.
    pub fn load(path: &Path, run: Option<&Path>) -> Result<SecretKey, KeyError> {
        let real = |path: &Path| fs::canonicalize(path).map_err(at("find", path));
        if let Some(run) = run
            && real(path)?.starts_with(real(run)?)
        {
            return Err(KeyError::InRun { path: path.to_owned(), run: run.to_owned() });
        }
        let mut file = File::open(path).map_err(at("open", path))?;
        let metadata = file.metadata().map_err(at("look at", path))?;
        if !metadata.is_file() || metadata.len() != LENGTH as u64 {
            return Err(KeyError::NotASeed(path.to_owned()));
        }
        if metadata.mode() & 0o077 != 0 {
            return Err(KeyError::Exposed { path: path.to_owned(), mode: metadata.mode() & 0o7777 });
        }
        let mut seed = [0; LENGTH];
        file.read_exact(&mut seed).map_err(at("read", path))?;
        Ok(SecretKey(SigningKey::from_bytes(&seed)))
    }

    /// The key that verifies what this one signs.
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.verifying_key())
    }

    pub(super) fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.0.sign(message).to_bytes()
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretKey of {}", self.public().id())
    }
}

impl PublicKey {
    /// The key's name: the digest of its 32 bytes.
    pub fn id(&self) -> Digest {
        Digest::of(self.0.as_bytes())
    }

    /// Its PEM (RFC 8410), 113 bytes.
    pub fn to_pem(&self) -> String {
        let der = [&DER_PREFIX[..], self.0.as_bytes()].concat();
        format!("{PEM_BEGIN}{}{PEM_END}", STANDARD.encode(der))
    }

    /// Reads exactly what [`to_pem`](Self::to_pem) and `openssl pkey -pubout` write.
    pub fn from_pem(text: &str) -> Result<PublicKey, KeyError> {
        let body = text.strip_prefix(PEM_BEGIN).and_then(|rest| rest.strip_suffix(PEM_END));
        let der = body.and_then(|body| STANDARD.decode(body).ok());
        let bytes = der.and_then(|der| der.strip_prefix(&DER_PREFIX).and_then(|key| key.try_into().ok()));
        let key = bytes.and_then(|bytes| VerifyingKey::from_bytes(&bytes).ok());
        key.filter(|key| !key.is_weak()).map(PublicKey).ok_or(KeyError::NotAPublicKey)
    }

    /// Whether the signature is this key's (RFC 8032 section 5.1.7, without its cofactor).
    pub(super) fn signed(&self, message: &[u8], signature: &[u8; 64]) -> bool {
        self.0.verify_strict(message, &Signature::from_bytes(signature)).is_ok()
    }
}

fn at(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> KeyError + use<> {
    let path = path.to_owned();
    move |source| KeyError::Io { step, path, source }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// RFC 8032 section 7.1, test 2.
    const SEED: [u8; 32] = [
        0x4c, 0xcd, 0x08, 0x9b, 0x28, 0xff, 0x96, 0xda, 0x9d, 0xb6, 0xc3, 0x46, 0xec, 0x11, 0x4e, 0x0f, 0x5b,
        0x8a, 0x31, 0x9f, 0x35, 0xab, 0xa6, 0x24, 0xda, 0x8c, 0xf6, 0xed, 0x4f, 0xb8, 0xa6, 0xfb,
    ];

    #[test]
    fn signatures_are_those_of_the_rfc() {
        let key = SecretKey(SigningKey::from_bytes(&SEED));
        let public: String = key.public().0.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(public, "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c");
        let signature = key.sign(&[0x72]);
        assert_eq!(signature[..8], [0x92, 0xa0, 0x09, 0xa9, 0xf0, 0xd4, 0xca, 0xb8]);
        assert!(key.public().signed(&[0x72], &signature));
        assert!(!key.public().signed(&[0x73], &signature));
    }

    #[test]
    fn a_key_is_read_back_by_its_owner() {
        let (folder, run) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = folder.path().join("key");
        let key = SecretKey::generate(&path).unwrap();
        let other = SecretKey::generate(&folder.path().join("other")).unwrap();
        assert_ne!(key.public(), other.public());
        assert!(matches!(SecretKey::generate(&path), Err(KeyError::Io { step: "create", .. })));
        assert_eq!(SecretKey::load(&path, Some(run.path())).unwrap().public(), key.public());
        let seed = fs::read(&path).unwrap();
        assert!(!format!("{key:?}").contains(&format!("{:?}", seed[0..3].to_vec())));
        for mode in [0o640, 0o604, 0o660, 0o601] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let error = SecretKey::load(&path, Some(run.path())).unwrap_err();
            assert!(matches!(error, KeyError::Exposed { .. }), "{mode:o}: {error}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
        assert!(SecretKey::load(&path, Some(run.path())).is_ok());
    }

    #[test]
    fn a_key_does_not_lie_in_the_run() {
        let run = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let inside = run.path().join("key");
        SecretKey::generate(&inside).unwrap();
        symlink(&inside, elsewhere.path().join("link")).unwrap();
        symlink(run.path(), elsewhere.path().join("run")).unwrap();
        for (key, run) in [
            (inside.clone(), run.path().to_owned()),
            (elsewhere.path().join("link"), run.path().to_owned()),
            (inside.clone(), elsewhere.path().join("run")),
        ] {
            assert!(
                matches!(SecretKey::load(&key, Some(&run)), Err(KeyError::InRun { .. })),
                "{key:?} {run:?}"
            );
        }
        assert!(SecretKey::load(&inside, Some(elsewhere.path())).is_ok());
    }

    #[test]
    fn other_files_are_no_keys() {
        let (folder, run) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = folder.path().join("key");
        for content in [&[7; 31][..], &[7; 33], &[]] {
            fs::write(&path, content).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            assert!(matches!(SecretKey::load(&path, Some(run.path())), Err(KeyError::NotASeed(_))));
        }
        assert!(matches!(SecretKey::load(folder.path(), Some(run.path())), Err(KeyError::NotASeed(_))));
        assert!(matches!(
            SecretKey::load(&run.path().join("none"), Some(run.path())),
            Err(KeyError::Io { .. })
        ));
    }

    #[test]
    fn public_keys_are_read_back() {
        let key = SecretKey(SigningKey::from_bytes(&SEED)).public();
        let pem = key.to_pem();
        assert_eq!(pem.len(), 113);
        assert_eq!(PublicKey::from_pem(&pem).unwrap(), key);
        // The point of order one, with which every message verifies in careless implementations.
        let weak = [&DER_PREFIX[..], &[1], &[0; 31]].concat();
        let weak = format!("{PEM_BEGIN}{}{PEM_END}", STANDARD.encode(weak));
        for bad in [pem.trim_end(), &pem.replace("MCow", "MCox"), &pem[1..], "", &pem.replace('=', ""), &weak]
        {
            assert!(matches!(PublicKey::from_pem(bad), Err(KeyError::NotAPublicKey)), "{bad}");
        }
    }
}
