//! What is asked: prompts of words, seeded, no two of them the same, so that no cache knows more of one than is wanted.

use super::chance::Chance;

/// Common words, one token each in the vocabularies of large models.
const WORDS: [&str; 64] = [
    "time",
    "year",
    "people",
    "way",
    "day",
    "man",
    "thing",
    "woman",
    "life",
    "child",
    "world",
    "school",
    "state",
    "family",
    "student",
    "group",
    "country",
    "problem",
    "hand",
    "part",
    "place",
    "case",
    "week",
    "company",
    "system",
    "program",
    "question",
    "work",
    "government",
    "number",
    "night",
    "point",
    "home",
    "water",
    "room",
    "mother",
    "area",
    "money",
    "story",
    "fact",
    "month",
    "lot",
    "right",
    "study",
    "book",
    "eye",
    "job",
    "word",
    "business",
    "issue",
    "side",
    "kind",
    "head",
    "house",
    "service",
    "friend",
    "father",
    "power",
    "hour",
    "game",
    "line",
    "end",
    "member",
    "law",
];

/// The place of the common beginning among the streams of a seed; those of prompts are counted from 0.
const COMMON: u64 = u64::MAX;

/// Prompts of one length.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prompts {
    pub(super) seed: u64,
    pub(super) words: usize,
    /// Words that all prompts begin with.
    pub(super) common_words: usize,
}

impl Prompts {
    /// The prompt of a place in the measurement, and a seed for its answer.
    pub(super) fn at(&self, place: &[u64]) -> (String, u64) {
        let mut chance = Chance::new(self.seed, place);
        let seed = chance.bits() >> 1;
        let mut common = Chance::new(self.seed, &[COMMON]);
        let mut prompt = String::new();
        for at in 0..self.words {
            let from = if at < self.common_words { &mut common } else { &mut chance };
            if at > 0 {
                prompt.push(' ');
            }
            prompt += WORDS.get(from.below(WORDS.len())).copied().unwrap_or_default();
        }
        (prompt, seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_are_seeded_distinct_and_begin_alike_where_wanted() {
        let prompts = Prompts { seed: 7, words: 20, common_words: 5 };
        let at = |place: &[u64]| prompts.at(place).0;
        assert_eq!(prompts.at(&[1, 2]), prompts.at(&[1, 2]));
        let all: std::collections::BTreeSet<String> = (0..500).map(|n| at(&[0, n])).collect();
        assert_eq!(all.len(), 500);
        let start = |text: &str| text.split(' ').take(5).map(str::to_owned).collect::<Vec<_>>();
        assert!(
            all.iter().all(|prompt| prompt.split(' ').count() == 20 && start(prompt) == start(&at(&[9])))
        );
        let other = Prompts { seed: 8, ..prompts };
        assert_ne!(start(&at(&[9])), start(&other.at(&[9]).0));
    }
}
