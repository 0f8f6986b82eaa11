//! The registry of pinned checkpoints: the growth point for models. Data only; who proves that a file is one of them
//! is `artifact::registration`.

use crate::spec::ModelSpec;

/// A repository at a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// `owner/name` on the Hugging Face hub.
    pub repository: String,
    /// The commit.
    pub revision: String,
}

/// One checkpoint that Kipp knows.
#[derive(Debug, PartialEq)]
pub struct Checkpoint {
    /// Its id in reports and on the command line.
    pub id: &'static str,
    /// `owner/name` on the Hugging Face hub; `None` for a checkpoint of our own.
    pub repository: Option<&'static str>,
    /// The pinned commit of the repository.
    pub revision: Option<&'static str>,
    /// Transformer layers.
    pub n_layers: usize,
    /// Width of the residual.
    pub hidden_size: usize,
    /// Width of the feed-forward part.
    pub intermediate_size: usize,
    /// Query heads.
    pub n_heads: usize,
    /// Key and value heads.
    pub n_kv_heads: usize,
    /// Values a head.
    pub head_dim: usize,
    /// Rows of the embedding.
    pub vocab_size: usize,
    /// Positions.
    pub max_position_embeddings: usize,
    /// Base of the rotary embedding.
    pub rope_theta: f64,
    /// The embedding serves as the output head.
    pub tie_word_embeddings: bool,
    /// Tokens that end an answer.
    pub stop_tokens: &'static [u32],
    /// Weight files that are this checkpoint, by sha256: each entry a whole artifact in one file.
    pub sha256: &'static [&'static str],
}

/// Epsilon of the RMS norms of every checkpoint here.
const RMS_NORM_EPS: f32 = 1e-6;
/// Base models stop at the end of a text, the others at the end of a turn too.
const BASE_STOPS: &[u32] = &[151_643];
const CHAT_STOPS: &[u32] = &[151_645, 151_643];

/// What differs between Qwen's dense checkpoints.
struct Row(&'static str, &'static str, &'static str, Shape, usize, f64, &'static [u32]);

/// Layers, hidden, feed-forward, heads, tied.
type Shape = (usize, usize, usize, usize, bool);

const S0_6B: Shape = (28, 1024, 3072, 16, true);
const S1_7B: Shape = (28, 2048, 6144, 16, true);
const S4B: Shape = (36, 2560, 9728, 32, true);
const S8B: Shape = (36, 4096, 12288, 32, false);
const S14B: Shape = (40, 5120, 17408, 40, false);
const S32B: Shape = (64, 5120, 25600, 64, false);

const fn qwen3(row: Row) -> Checkpoint {
    let Row(id, repository, revision, shape, max_position_embeddings, rope_theta, stop_tokens) = row;
    let (n_layers, hidden_size, intermediate_size, n_heads, tie_word_embeddings) = shape;
    Checkpoint {
        id,
        repository: Some(repository),
        revision: Some(revision),
        n_layers,
        hidden_size,
        intermediate_size,
        n_heads,
        n_kv_heads: 8,
        head_dim: 128,
        vocab_size: 151_936,
        max_position_embeddings,
        rope_theta,
        tie_word_embeddings,
        stop_tokens,
        sha256: &[],
    }
}

/// Every checkpoint, `kipp-tiny` first.
#[rustfmt::skip]
pub static CHECKPOINTS: [Checkpoint; 14] = [
    KIPP_TINY,
    qwen3(Row("qwen3-0.6b-base", "Qwen/Qwen3-0.6B-Base", "da87bfb608c14b7cf20ba1ce41287e8de496c0cd", S0_6B, 32_768, 1e6, BASE_STOPS)),
    qwen3(Row("qwen3-0.6b", "Qwen/Qwen3-0.6B", "c1899de289a04d12100db370d81485cdf75e47ca", S0_6B, 40_960, 1e6, CHAT_STOPS)),
    qwen3(Row("qwen3-1.7b-base", "Qwen/Qwen3-1.7B-Base", "ea980cb0a6c2ae4b936e82123acc929f1cec04c1", S1_7B, 32_768, 1e6, BASE_STOPS)),
    qwen3(Row("qwen3-1.7b", "Qwen/Qwen3-1.7B", "70d244cc86ccca08cf5af4e1e306ecf908b1ad5e", S1_7B, 40_960, 1e6, CHAT_STOPS)),
    qwen3(Row("qwen3-4b-base", "Qwen/Qwen3-4B-Base", "906bfd4b4dc7f14ee4320094d8b41684abff8539", S4B, 32_768, 1e6, BASE_STOPS)),
    qwen3(Row("qwen3-4b", "Qwen/Qwen3-4B", "1cfa9a7208912126459214e8b04321603b3df60c", S4B, 40_960, 1e6, CHAT_STOPS)),
    qwen3(Row("qwen3-4b-instruct-2507", "Qwen/Qwen3-4B-Instruct-2507", "cdbee75f17c01a7cc42f958dc650907174af0554", S4B, 262_144, 5e6, CHAT_STOPS)),
    qwen3(Row("qwen3-4b-thinking-2507", "Qwen/Qwen3-4B-Thinking-2507", "768f209d9ea81521153ed38c47d515654e938aea", S4B, 262_144, 5e6, CHAT_STOPS)),
    qwen3(Row("qwen3-8b-base", "Qwen/Qwen3-8B-Base", "49e3418fbbbca6ecbdf9608b4d22e5a407081db4", S8B, 32_768, 1e6, BASE_STOPS)),
    qwen3(Row("qwen3-8b", "Qwen/Qwen3-8B", "b968826d9c46dd6066d109eabc6255188de91218", S8B, 40_960, 1e6, CHAT_STOPS)),
    qwen3(Row("qwen3-14b-base", "Qwen/Qwen3-14B-Base", "0b0bd3732e2c374d483664439ea334928b65f304", S14B, 32_768, 1e6, BASE_STOPS)),
    qwen3(Row("qwen3-14b", "Qwen/Qwen3-14B", "40c069824f4251a91eefaf281ebe4c544efd3e18", S14B, 40_960, 1e6, CHAT_STOPS)),
    qwen3(Row("qwen3-32b", "Qwen/Qwen3-32B", "9216db5781bf21249d130ec9da846c4624c16137", S32B, 40_960, 1e6, CHAT_STOPS)),
];

/// The demonstration model that stands in this repository and is embedded in the program.
const KIPP_TINY: Checkpoint = Checkpoint {
    id: "kipp-tiny",
    repository: None,
    revision: None,
    n_layers: 5,
    hidden_size: 256,
    intermediate_size: 768,
    n_heads: 8,
    n_kv_heads: 2,
    head_dim: 64,
    vocab_size: 4096,
    max_position_embeddings: 2048,
    rope_theta: 1e6,
    tie_word_embeddings: true,
    stop_tokens: &[4002, 4000],
    sha256: &[
        // models/kipp-tiny/model.safetensors
        "919585babbd17dc811697836e48eaf4fd4cc7355e9be64df6ab5ceb81219cb3e",
        // models/kipp-tiny/kipp-tiny.gguf
        "9de26e289fbbb3da8fd44a7ff116d1137b99055b4e0b27c9333cc31131654937",
    ],
};

impl Checkpoint {
    /// The checkpoint of that id.
    pub fn by_id(id: &str) -> Option<&'static Checkpoint> {
        CHECKPOINTS.iter().find(|checkpoint| checkpoint.id == id)
    }

    /// The checkpoint pinned at that repository and revision.
    pub fn by_source(source: &Source) -> Option<&'static Checkpoint> {
        CHECKPOINTS.iter().find(|checkpoint| {
            checkpoint.repository == Some(source.repository.as_str())
                && checkpoint.revision == Some(source.revision.as_str())
        })
    }

    /// The checkpoint of which a file with that sha256 is proof.
    pub fn by_sha256(sha256: &str) -> Option<&'static Checkpoint> {
        CHECKPOINTS.iter().find(|checkpoint| checkpoint.sha256.contains(&sha256))
    }

    /// Its dimensions.
    pub fn spec(&self) -> ModelSpec {
        ModelSpec {
            n_layers: self.n_layers,
            hidden_size: self.hidden_size,
            intermediate_size: self.intermediate_size,
            n_heads: self.n_heads,
            n_kv_heads: self.n_kv_heads,
            head_dim: self.head_dim,
            vocab_size: self.vocab_size,
            rope_theta: self.rope_theta,
            rms_norm_eps: RMS_NORM_EPS,
            max_position_embeddings: self.max_position_embeddings,
            tie_word_embeddings: self.tie_word_embeddings,
            rope_scaling: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_checkpoint_is_pinned_once_and_possible() {
        for checkpoint in &CHECKPOINTS {
            assert!(checkpoint.spec().validate().is_ok(), "{}", checkpoint.id);
            assert_eq!(Checkpoint::by_id(checkpoint.id), Some(checkpoint));
            assert!(checkpoint.sha256.iter().all(|hash| hash.len() == 64));
            if let (Some(repository), Some(revision)) = (checkpoint.repository, checkpoint.revision) {
                assert_eq!(revision.len(), 40);
                let source = Source { repository: repository.into(), revision: revision.into() };
                assert_eq!(Checkpoint::by_source(&source), Some(checkpoint));
            }
        }
    }
}
