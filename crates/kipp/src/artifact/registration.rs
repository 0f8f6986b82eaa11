//! Is this file one of the registered checkpoints? Proved by hashes, never guessed from dimensions.

use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::map::Bytes;
use crate::checkpoints::{Checkpoint, Source};

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
pub(crate) const QUICK_HASH_BYTES: u64 = 64 << 20;

/// One weight file of an artifact.
pub(crate) struct WeightFile<'a> {
    pub(crate) path: Option<&'a Path>,
    pub(crate) bytes: &'a Bytes,
}

/// Decides, hashing everything that proof needs.
pub(crate) fn prove(
    folder: Option<&Path>,
    files: &[WeightFile<'_>],
    claimed: Option<&Source>,
) -> Registration {
    if let [file] = files
        && let Some(checkpoint) = Checkpoint::by_sha256(&sha256_hex(file.bytes))
    {
        return Registration::Registered(checkpoint);
    }
    let pinned = folder.and_then(snapshot_source).and_then(|source| Checkpoint::by_source(&source));
    if let Some(checkpoint) = pinned {
        let proved = files.iter().all(|file| {
            let named = file.path.and_then(blob_name);
            named.is_some_and(|name| name == sha256_hex(file.bytes))
        });
        return if proved { Registration::Registered(checkpoint) } else { Registration::Unregistered };
    }
    claim(claimed)
}

/// Decides without hashing large files: a pinned snapshot counts as claimed until it is proved.
pub(crate) fn quick(
    folder: Option<&Path>,
    files: &[WeightFile<'_>],
    claimed: Option<&Source>,
) -> Registration {
    let bytes: u64 = files.iter().map(|file| file.bytes.len() as u64).sum();
    if bytes <= QUICK_HASH_BYTES {
        return prove(folder, files, claimed);
    }
    claim(folder.and_then(snapshot_source).as_ref().or(claimed))
}

fn claim(source: Option<&Source>) -> Registration {
    source.and_then(Checkpoint::by_source).map_or(Registration::Unregistered, Registration::Claimed)
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
}
