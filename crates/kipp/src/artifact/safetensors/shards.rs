//! Weights of a Hugging Face folder: `model.safetensors`, or shards that `model.safetensors.index.json` lists.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use super::{SafetensorsError, SafetensorsFile, object, parse_json};
use crate::artifact::error::ArtifactError;
use crate::artifact::map::Bytes;
use crate::artifact::tensor::TensorEntry;

/// Weights of a folder: the files, and the tensors of all of them numbered by file.
pub(crate) struct Shards {
    pub(crate) paths: Vec<PathBuf>,
    pub(crate) files: Vec<Bytes>,
    pub(crate) tensors: Vec<TensorEntry>,
}

/// Opens the weights of a folder; the single file goes before the index, as in Transformers.
pub(crate) fn open_shards(folder: &Path) -> Result<Shards, ArtifactError> {
    let single = folder.join("model.safetensors");
    if single.exists() {
        let file = open_one(&single)?;
        return Ok(Shards { paths: vec![single], files: vec![file.bytes], tensors: file.tensors });
    }
    let index_path = folder.join("model.safetensors.index.json");
    if !index_path.exists() {
        let reason = "no weights: neither model.safetensors nor model.safetensors.index.json is there";
        return Err(ArtifactError::NotAModel { path: folder.to_owned(), reason });
    }
    let index = Bytes::open(&index_path).map_err(|error| ArtifactError::io(&index_path, error))?;
    let index = read_index(&index).map_err(|error| refuse(&index_path, error))?;

    let mut shards = Shards { paths: Vec::new(), files: Vec::new(), tensors: Vec::new() };
    for (shard, listed) in index {
        let path = folder.join(&shard);
        let file = open_one(&path)?;
        let mut missing: HashSet<&str> = listed.iter().map(String::as_str).collect();
        for mut tensor in file.tensors {
            if !missing.remove(tensor.name.as_str()) {
                let tensor = tensor.name.as_str().into();
                return Err(refuse(&path, SafetensorsError::NotInIndex { tensor }));
            }
            tensor.file = shards.files.len();
            shards.tensors.push(tensor);
        }
        if let Some(tensor) = missing.iter().min() {
            let error =
                SafetensorsError::NotInShard { tensor: (*tensor).into(), shard: shard.as_str().into() };
            return Err(refuse(&index_path, error));
        }
        shards.files.push(file.bytes);
        shards.paths.push(path);
    }
    Ok(shards)
}

fn refuse(path: &Path, error: SafetensorsError) -> ArtifactError {
    ArtifactError::Safetensors { path: path.to_owned(), error }
}

fn open_one(path: &Path) -> Result<SafetensorsFile, ArtifactError> {
    let bytes = Bytes::open(path).map_err(|error| ArtifactError::io(path, error))?;
    SafetensorsFile::parse(bytes).map_err(|error| refuse(path, error))
}

/// The tensors of each shard, shards in the order of their names.
fn read_index(bytes: &[u8]) -> Result<BTreeMap<String, Vec<String>>, SafetensorsError> {
    let json = parse_json(bytes)?;
    object(&json)?;
    let map = json.get("weight_map").ok_or(SafetensorsError::NoWeightMap)?;
    let mut shards: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (tensor, shard) in object(map)? {
        let name = shard.as_str().filter(|name| is_plain(name)).ok_or_else(|| {
            SafetensorsError::ShardName { tensor: tensor.as_str().into(), shard: shard.shown() }
        })?;
        shards.entry(name.to_owned()).or_default().push(tensor.clone());
    }
    Ok(shards)
}

/// A file of this folder: an index must not lead elsewhere.
fn is_plain(name: &str) -> bool {
    name.ends_with(".safetensors")
        && !name.starts_with('.')
        && !name.contains(|c: char| matches!(c, '/' | '\\' | ':') || c.is_control())
}
