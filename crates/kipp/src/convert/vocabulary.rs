//! The source's vocabulary as a GGUF file lists it: one entry for each row of the embedding.

use super::ConvertError;
use crate::artifact::{Artifact, ArtifactError, GgufVocabulary, SpecialIds, TokenizerFilesError};
use crate::token::TokenId;
use crate::tokenizer::Tokenizer;

/// Entries and special ids of the file to be.
pub(super) struct Vocabulary {
    pub(super) entries: GgufVocabulary,
    pub(super) special_ids: SpecialIds,
}

/// The source's vocabulary; `None` where it has no tokenizer.
pub(super) fn of(source: &Artifact) -> Result<Option<Vocabulary>, ConvertError> {
    let files = source.tokenizer_files();
    let found = match files.source() {
        Err(ArtifactError::Tokenizer { error: TokenizerFilesError::Absent { .. }, .. }) => return Ok(None),
        found => found?,
    };
    let lists = Tokenizer::from_source(&found).and_then(|tokenizer| {
        let lists = tokenizer.with_rows(source.spec().vocab_size)?.to_vocabulary();
        // What is written must be what `run` accepts.
        Tokenizer::from_vocabulary(&lists.tokens, &lists.kinds, &lists.merges, &lists.pre).map(|_| lists)
    });
    let entries = lists.map_err(|error| ConvertError::Tokenizer { path: files.path().to_owned(), error })?;
    // A folder names its special tokens by their spelling; ids come second.
    let (eos, pad) = files.named_tokens();
    let id_of = |content: Option<&str>| {
        let at = entries.tokens.iter().position(|token| Some(token.as_str()) == content)?;
        TokenId::try_from(at).ok()
    };
    let ids = files.special_ids();
    let special_ids = SpecialIds { eos: id_of(eos).or(ids.eos), pad: id_of(pad).or(ids.pad), ..ids };
    Ok(Some(Vocabulary { entries, special_ids }))
}
