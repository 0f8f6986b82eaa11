//! GGUF in parts: `name-00001-of-0000N.gguf`, where the first part carries the metadata and every part its own tensors.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use super::{GgufError, GgufFile};
use crate::artifact::error::ArtifactError;
use crate::artifact::map::Bytes;

/// Opens a file and, when it is the first of several parts, the others beside it. The tensors of all parts are in the
/// first element's list, numbered by file.
pub(crate) fn open_parts(path: &Path) -> Result<(GgufFile, Vec<(PathBuf, Bytes)>), ArtifactError> {
    let mut first = open_one(path)?;
    let refuse = |error| ArtifactError::Gguf { path: path.to_owned(), error };
    let Some((count, promised)) = parts(&first).map_err(refuse)? else {
        let bytes = first.bytes.clone();
        return Ok((first, vec![(path.to_owned(), bytes)]));
    };
    let mut files = vec![(path.to_owned(), first.bytes.clone())];
    let mut names: HashSet<String> = first.tensors.iter().map(|tensor| tensor.name.clone()).collect();
    for part in 2..=count {
        let Some(part_path) = part_path(path, part, count) else {
            return Err(refuse(GgufError::Split {
                part: 1,
                count,
                reason: "the file name does not end in -00001-of-NNNNN.gguf, so the other parts cannot be found",
            }));
        };
        let file = open_one(&part_path)?;
        let refuse = |error| ArtifactError::Gguf { path: part_path.clone(), error };
        let number = file.metadata.unsigned("split.no").map_err(refuse)?;
        if number != Some(part - 1) || file.metadata.unsigned("split.count").map_err(refuse)? != Some(count) {
            let reason = "its split.no and split.count do not say so";
            return Err(refuse(GgufError::Split { part, count, reason }));
        }
        for mut tensor in file.tensors {
            if !names.insert(tensor.name.clone()) {
                return Err(refuse(GgufError::DuplicateTensor { tensor: tensor.name.as_str().into() }));
            }
            tensor.file = files.len();
            first.tensors.push(tensor);
        }
        files.push((part_path, file.bytes));
    }
    let found = first.tensors.len() as u64;
    if let Some(expected) = promised.filter(|&expected| expected != found) {
        return Err(refuse(GgufError::SplitTensors { expected, found }));
    }
    Ok((first, files))
}

fn open_one(path: &Path) -> Result<GgufFile, ArtifactError> {
    let bytes = Bytes::open(path).map_err(|error| ArtifactError::io(path, error))?;
    GgufFile::parse(bytes).map_err(|error| ArtifactError::Gguf { path: path.to_owned(), error })
}

/// The number of parts and the tensors they promise, where the file is one of several; only the first may be opened.
pub(crate) fn parts(file: &GgufFile) -> Result<Option<(u64, Option<u64>)>, GgufError> {
    let Some(count) = file.metadata.unsigned("split.count")?.filter(|&count| count != 1) else {
        return Ok(None);
    };
    // Five digits in the name.
    if !(1..=99_999).contains(&count) {
        let value = count.to_string().as_str().into();
        return Err(GgufError::OutOfRange { key: "split.count".into(), value, expected: "1 to 99999" });
    }
    match file.metadata.unsigned("split.no")? {
        Some(0) => Ok(Some((count, file.metadata.unsigned("split.tensors.count")?))),
        Some(number) => {
            let reason = "open the first part instead";
            Err(GgufError::Split { part: number.saturating_add(1), count, reason })
        }
        None => Err(GgufError::MissingKey { key: "split.no".into() }),
    }
}

fn part_path(first: &Path, part: u64, count: u64) -> Option<PathBuf> {
    let name = first.file_name()?.to_str()?;
    let stem = name.strip_suffix(&format!("-00001-of-{count:05}.gguf"))?;
    Some(first.with_file_name(format!("{stem}-{part:05}-of-{count:05}.gguf")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_named_after_the_first() {
        let first = Path::new("/m/q-00001-of-00003.gguf");
        assert_eq!(part_path(first, 2, 3), Some(PathBuf::from("/m/q-00002-of-00003.gguf")));
        assert_eq!(part_path(first, 2, 4), None);
        assert_eq!(part_path(Path::new("/m/q.gguf"), 2, 3), None);
    }
}
