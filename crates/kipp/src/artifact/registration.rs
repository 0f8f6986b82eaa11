//! Is this file one of the registered checkpoints? Proved by hashes, never guessed from dimensions.

use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::map::Bytes;
use crate::checkpoints::{Checkpoint, Source};
use crate::spec::ModelSpec;

/// What is known of an artifact's origin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Registration {
    /// Proved to be this checkpoint.
    Registered(&'static Checkpoint),
    /// Says that it was made from this checkpoint; nothing proves it.
    Claimed(&'static Checkpoint),
    /// Anything else of the architecture.
    Unregistered,
}

impl Registration {
    /// `registered`, `claimed` or `unregistered`, as every report spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Registration::Registered(_) => "registered",
            Registration::Claimed(_) => "claimed",
            Registration::Unregistered => "unregistered",
        }
    }

    /// The checkpoint, proved or claimed.
    pub fn checkpoint(self) -> Option<&'static Checkpoint> {
        match self {
            Registration::Registered(checkpoint) | Registration::Claimed(checkpoint) => Some(checkpoint),
            Registration::Unregistered => None,
        }
    }
}

/// Files up to this size are hashed whenever registration is asked for; larger ones only when proof is wanted. 64 MiB
/// take a tenth of a second.
const QUICK_HASH_BYTES: u64 = 64 << 20;

/// One weight file of an artifact.
pub(crate) struct WeightFile<'a> {
    pub(crate) path: Option<&'a Path>,
    pub(crate) bytes: &'a Bytes,
}

/// What an artifact says about itself, to be proved.
pub(crate) struct Evidence<'a> {
    /// The folder, where it is one.
    pub(crate) folder: Option<&'a Path>,
    pub(crate) files: Vec<WeightFile<'a>>,
    /// The source that a GGUF file names.
    pub(crate) claimed: Option<&'a Source>,
    pub(crate) spec: &'a ModelSpec,
}

impl Evidence<'_> {
    /// Decides, hashing everything that proof needs.
    pub(crate) fn prove(&self) -> Registration {
        if let [file] = self.files.as_slice()
            && let Some(checkpoint) = Checkpoint::by_sha256(&sha256_hex(file.bytes))
        {
            // The weights of a folder are proved by their hash, its config.json only by what it says.
            let same = checkpoint.spec() == *self.spec;
            return if same { Registration::Registered(checkpoint) } else { Registration::Unregistered };
        }
        if let Some(checkpoint) =
            self.folder.and_then(snapshot_source).and_then(|source| self.pinned(&source))
        {
            let proved = self.files.iter().all(|file| {
                let named = file.path.and_then(blob_name);
                named.is_some_and(|name| name == sha256_hex(file.bytes))
            });
            return if proved { Registration::Registered(checkpoint) } else { Registration::Unregistered };
        }
        self.claim(self.claimed)
    }

    /// Whether proof takes no noticeable time.
    pub(crate) fn is_quick(&self) -> bool {
        self.files.iter().map(|file| file.bytes.len() as u64).sum::<u64>() <= QUICK_HASH_BYTES
    }

    /// Decides without hashing: a pinned snapshot counts as claimed until it is proved.
    pub(crate) fn unproved(&self) -> Registration {
        self.claim(self.folder.and_then(snapshot_source).as_ref().or(self.claimed))
    }

    fn claim(&self, source: Option<&Source>) -> Registration {
        source
            .and_then(|source| self.pinned(source))
            .map_or(Registration::Unregistered, Registration::Claimed)
    }

    /// The checkpoint pinned there, unless the dimensions contradict it.
    fn pinned(&self, source: &Source) -> Option<&'static Checkpoint> {
        Checkpoint::by_source(source).filter(|checkpoint| checkpoint.spec() == *self.spec)
    }
}

/// Repository and revision of a folder in the Hugging Face cache:
/// `models--OWNER--NAME/snapshots/REVISION`.
pub(crate) fn snapshot_source(folder: &Path) -> Option<Source> {
    let revision = folder.file_name()?.to_str()?;
    let snapshots = folder.parent()?;
    let repository = snapshots.parent()?.file_name()?.to_str()?.strip_prefix("models--")?;
    let (owner, name) = repository.split_once("--")?;
    (snapshots.file_name()? == "snapshots")
        .then(|| Source { repository: format!("{owner}/{name}"), revision: revision.to_owned() })
}

/// The name of the blob that a snapshot's file links to; the cache names large files by their sha256.
fn blob_name(path: &Path) -> Option<String> {
    let target: PathBuf = std::fs::read_link(path).ok()?;
    let name = target.file_name()?.to_str()?;
    (target.parent()?.file_name()? == "blobs").then(|| name.to_owned())
}

/// The sha256 of bytes, in lower-case hexadecimal.
pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The sha256 of a file, in lower-case hexadecimal.
pub fn sha256_file(path: &Path) -> io::Result<String> {
    Ok(sha256_hex(&Bytes::open(path)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_caches_own_layout_names_a_source() {
        let source = snapshot_source(Path::new("/c/models--Qwen--Qwen3-0.6B/snapshots/abc"));
        assert_eq!(source, Some(Source { repository: "Qwen/Qwen3-0.6B".into(), revision: "abc".into() }));
        assert_eq!(snapshot_source(Path::new("/c/models--Qwen--Qwen3-0.6B/refs/abc")), None);
        assert_eq!(snapshot_source(Path::new("Qwen3-0.6B")), None);
    }

    #[cfg(unix)]
    #[test]
    fn a_pinned_snapshot_is_registered_when_its_blobs_hash_to_their_names() {
        let cache = tempfile::tempdir().unwrap();
        let pinned = Checkpoint::by_id("qwen3-0.6b").unwrap();
        let root = cache.path().join("models--Qwen--Qwen3-0.6B");
        let folder = root.join("snapshots").join(pinned.revision.unwrap());
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::create_dir_all(root.join("blobs")).unwrap();
        let link = folder.join("model.safetensors");
        let verdict = |name: &str, spec: &ModelSpec| {
            let blob = root.join("blobs").join(name);
            std::fs::write(&blob, b"weights").unwrap();
            let _ = std::fs::remove_file(&link);
            std::os::unix::fs::symlink(&blob, &link).unwrap();
            let bytes = Bytes::open(&link).unwrap();
            let files = vec![WeightFile { path: Some(&link), bytes: &bytes }];
            Evidence { folder: Some(&folder), files, claimed: None, spec }.prove()
        };
        let hash = sha256_hex(b"weights");
        assert_eq!(verdict(&hash, &pinned.spec()), Registration::Registered(pinned));
        assert_eq!(verdict(&"0".repeat(64), &pinned.spec()), Registration::Unregistered);
        let other = Checkpoint::by_id("qwen3-1.7b").unwrap().spec();
        assert_eq!(verdict(&hash, &other), Registration::Unregistered);
    }

    #[test]
    fn a_file_that_names_a_pinned_revision_is_claimed() {
        let pinned = Checkpoint::by_id("qwen3-4b").unwrap();
        let source = Source { repository: "Qwen/Qwen3-4B".into(), revision: pinned.revision.unwrap().into() };
        let bytes = Bytes::from(vec![1, 2, 3]);
        let verdict = |source: &Source, spec: &ModelSpec| {
            let files = vec![WeightFile { path: None, bytes: &bytes }];
            Evidence { folder: None, files, claimed: Some(source), spec }.prove()
        };
        assert_eq!(verdict(&source, &pinned.spec()), Registration::Claimed(pinned));
        let elsewhere = Source { revision: "0".repeat(40), ..source };
        assert_eq!(verdict(&elsewhere, &pinned.spec()), Registration::Unregistered);
    }
}
