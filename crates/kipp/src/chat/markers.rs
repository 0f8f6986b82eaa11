//! Which control-token spellings of a prompt the template wrote itself.
//!
//! ```text
//! give each added-token spelling one character that occurs nowhere else        (an atom)
//! put atoms for the spellings in the template's source, none into messages
//! render; every atom that arrives is the template's own, whatever was done to the text on its way
//! spell the atoms out again; any other place that spells an added token is plain text
//! ```
//!
//! Messages are never marked, so nothing that they contain, in whatever pieces or letter case, can become a
//! marker. Atoms are single characters, so no splitting, stripping or joining in a template takes one apart.

use std::ops::Range;

/// First character of the two private-use planes, from which atoms are taken.
const FIRST_ATOM: char = '\u{F0000}';

/// The added-token spellings of a tokenizer, searchable.
#[derive(Clone, Debug)]
pub(super) struct Markers {
    spellings: Vec<String>,
    /// By first byte: indices of spellings, the longest first.
    by_first_byte: Vec<Vec<usize>>,
}

/// One unused character for each spelling.
#[derive(Clone, Debug)]
pub(super) struct Atoms {
    /// `[n_spellings]`, ascending.
    chars: Vec<char>,
    spellings: Vec<String>,
}

impl Markers {
    pub(super) fn new(added: &[&str]) -> Self {
        let spellings: Vec<String> =
            added.iter().filter(|text| !text.is_empty()).map(|text| (*text).to_owned()).collect();
        let mut by_first_byte = vec![Vec::new(); 256];
        for (index, spelling) in spellings.iter().enumerate() {
            by_first_byte[usize::from(spelling.as_bytes()[0])].push(index);
        }
        for indices in &mut by_first_byte {
            indices.sort_by_key(|index| std::cmp::Reverse(spellings[*index].len()));
        }
        Self { spellings, by_first_byte }
    }

    /// The longest spelling that begins at byte `at`.
    fn longest_at(&self, text: &str, at: usize) -> Option<usize> {
        let rest = &text.as_bytes()[at..];
        let indices = &self.by_first_byte[usize::from(*rest.first()?)];
        indices.iter().copied().find(|index| rest.starts_with(self.spellings[*index].as_bytes()))
    }

    /// `text` with an atom for each spelling that `chosen` takes, found from the left, the longest first.
    pub(super) fn mark(&self, text: &str, atoms: &Atoms, chosen: impl Fn(&str) -> bool) -> String {
        let mut marked = String::with_capacity(text.len());
        let (mut at, mut copied) = (0, 0);
        while at < text.len() {
            let Some(index) = self.longest_at(text, at) else {
                at += 1;
                continue;
            };
            let spelling = &self.spellings[index];
            if chosen(spelling) {
                marked.push_str(&text[copied..at]);
                marked.push(atoms.chars[index]);
                copied = at + spelling.len();
            }
            at += spelling.len();
        }
        marked.push_str(&text[copied..]);
        marked
    }

    /// Where `text` spells an added token although none of the `trusted` ranges (sorted, apart) stands there:
    /// byte ranges, sorted, apart, touching no trusted one.
    pub(super) fn plain_ranges(&self, text: &str, trusted: &[Range<usize>]) -> Vec<Range<usize>> {
        let mut plain: Vec<Range<usize>> = Vec::new();
        let mut next_trusted = 0;
        let mut at = 0;
        while at < text.len() {
            let barrier = trusted.get(next_trusted);
            if let Some(range) = barrier.filter(|range| range.start == at) {
                at = range.end;
                next_trusted += 1;
                continue;
            }
            if let Some(index) = self.longest_at(text, at) {
                let limit = barrier.map_or(text.len(), |range| range.start);
                let end = (at + self.spellings[index].len()).min(limit);
                match plain.last_mut().filter(|last| last.end > at) {
                    Some(last) => last.end = last.end.max(end),
                    None => plain.push(at..end),
                }
            }
            at += 1;
        }
        plain
    }
}

impl Atoms {
    /// Atoms for `markers` that occur in none of `texts`; none when these use up the private planes.
    pub(super) fn unused<'a>(markers: &Markers, texts: impl Iterator<Item = &'a str>) -> Option<Self> {
        let mut taken: Vec<char> = texts.flat_map(str::chars).filter(|c| *c >= FIRST_ATOM).collect();
        taken.sort_unstable();
        taken.dedup();
        let free = (FIRST_ATOM..='\u{10FFFD}').filter(|c| taken.binary_search(c).is_err());
        let chars: Vec<char> = free.take(markers.spellings.len()).collect();
        let enough = chars.len() == markers.spellings.len();
        enough.then(|| Self { chars, spellings: markers.spellings.clone() })
    }

    /// The spelling behind a character.
    fn spelling(&self, c: char) -> Option<&str> {
        self.chars.binary_search(&c).ok().map(|index| self.spellings[index].as_str())
    }

    /// The text with every atom spelled out, and the byte ranges where that happened; none when there is no atom.
    pub(super) fn spell_out(&self, text: &str) -> Option<(String, Vec<Range<usize>>)> {
        let mut spelled = String::new();
        let mut trusted = Vec::new();
        let mut copied = 0;
        for (at, c) in text.char_indices().filter(|(_, c)| *c >= FIRST_ATOM) {
            let Some(spelling) = self.spelling(c) else { continue };
            spelled.push_str(&text[copied..at]);
            trusted.push(spelled.len()..spelled.len() + spelling.len());
            spelled.push_str(spelling);
            copied = at + c.len_utf8();
        }
        spelled.push_str(&text[copied..]);
        (!trusted.is_empty()).then_some((spelled, trusted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_from_the_left_and_the_longest_first() {
        let markers = Markers::new(&["<a>", "<a><b>", "", "x"]);
        let atoms = Atoms::unused(&markers, ["\u{F0000}\u{F0002}"].into_iter()).unwrap();
        assert_eq!(atoms.chars, ['\u{F0001}', '\u{F0003}', '\u{F0004}']);
        let marked = markers.mark("<a><b><a>yx", &atoms, |_| true);
        assert_eq!(marked, "\u{F0003}\u{F0001}y\u{F0004}");
        let (text, trusted) = atoms.spell_out(&marked).unwrap();
        assert_eq!((text.as_str(), trusted), ("<a><b><a>yx", vec![0..6, 6..9, 10..11]));
        assert_eq!(markers.mark("<a>x", &atoms, |spelling| spelling == "x"), "<a>\u{F0004}");
    }

    #[test]
    fn plain_ranges_cover_overlaps_and_stop_at_trusted_ones() {
        let markers = Markers::new(&["aba", "bb", "b"]);
        assert_eq!(markers.plain_ranges("xababax b", &[]), [1..6, 8..9]);
        assert_eq!(markers.plain_ranges("abb", std::slice::from_ref(&(1..3))), []);
        assert_eq!(markers.plain_ranges("aba bb", std::slice::from_ref(&(2..3))), [0..2, 4..6]);
        assert_eq!(markers.plain_ranges("é", &[]), []);
    }

    #[test]
    fn no_atoms_are_left_when_the_private_planes_are_used_up() {
        let all: String = (FIRST_ATOM..='\u{10FFFD}').collect();
        assert!(Atoms::unused(&Markers::new(&["a"]), [all.as_str()].into_iter()).is_none());
    }
}
