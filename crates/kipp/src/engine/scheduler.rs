//! What the next step runs: decisions from numbers, with no sequence, block or clock in hand.
//!
//! ```text
//! every sequence that decodes gets its row; the youngest give up their blocks where there are too few
//! what the token budget leaves goes to drafts, then to prompts:
//!     where answers are being decoded, only as much as keeps the step short (`pace`)
//!     half at least to the oldest prompt, up to a block to each of the others in turn, the rest in turn
//! the oldest of those that wait is admitted while there is a share for it and room for all its blocks
//! ```

use crate::kv::BLOCK_TOKENS;

/// Prompts that are under way at most, unless more fit into one step: a short prompt starts while a long one is being
/// evaluated, and few prompts lie half evaluated in memory.
const PROMPTS_UNDER_WAY: usize = 4;

/// Tokens of each prompt that are evaluated in a step. `left_tokens` counts what is left of each, the oldest first.
///
/// Half of `allowance_tokens` at least goes to the oldest; the others get up to a block each, so that a short prompt does
/// not wait until a long one is done.
pub(super) fn share(allowance_tokens: usize, left_tokens: &[usize]) -> Vec<usize> {
    let mut shares = vec![0; left_tokens.len()];
    let mut for_others = allowance_tokens / 2;
    for (share, left) in shares.iter_mut().zip(left_tokens).skip(1) {
        *share = (*left).min(BLOCK_TOKENS).min(for_others);
        for_others -= *share;
    }
    let mut rest = allowance_tokens - shares.iter().sum::<usize>();
    for (share, left) in shares.iter_mut().zip(left_tokens) {
        let more = (left - *share).min(rest);
        *share += more;
        rest -= more;
    }
    shares
}

/// Whether another prompt would get a share of `allowance_tokens` beside those under way.
pub(super) fn has_share(allowance_tokens: usize, left_tokens: &[usize]) -> bool {
    let under_way: usize = left_tokens.iter().sum();
    under_way < allowance_tokens || (allowance_tokens > 1 && left_tokens.len() < PROMPTS_UNDER_WAY)
}

/// Whether `blocks` more can be taken of `available_blocks` while each of `running` sequences can still grow by one:
/// a sequence that is admitted into the last block is the next one to be preempted.
pub(super) fn has_room(blocks: usize, available_blocks: usize, running: usize) -> bool {
    blocks.saturating_add(running) <= available_blocks || (running == 0 && blocks <= available_blocks)
}

/// Most draft tokens of each sequence, which has room for `wanted`, so that all together are at most `limit`.
pub(super) fn allot_drafts(limit: usize, wanted: &[usize]) -> Vec<usize> {
    let mut left = limit;
    let mut sequences = wanted.len();
    // In order, an even share of what is left: a short draft leaves more for the rest.
    let allotted = wanted.iter().map(|wanted| {
        let even = left / sequences.max(1);
        sequences -= 1;
        let allotted = (*wanted).min(even);
        left -= allotted;
        allotted
    });
    allotted.collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_oldest_prompt_gets_half_and_a_short_one_gets_in() {
        assert_eq!(share(512, &[6000, 20]), [492, 20]);
        assert_eq!(share(512, &[6000, 3000, 3000, 3000]), [416, 32, 32, 32]);
        assert_eq!(share(32, &[6000, 20, 9]), [16, 16, 0]);
        assert_eq!(share(512, &[100, 200, 300, 400]), [100, 200, 180, 32]);
        assert_eq!(share(1, &[5, 5]), [1, 0]);
        assert_eq!(share(0, &[5]), [0]);
        assert_eq!(share(512, &[]), [0; 0]);
    }

    #[test]
    fn prompts_are_admitted_while_there_is_a_share() {
        assert!(has_share(512, &[]) && has_share(512, &[6000, 6000, 6000]));
        assert!(!has_share(512, &[6000, 6000, 6000, 6000]));
        assert!(has_share(512, &[10; 40]) && !has_share(0, &[]));
        assert!(has_room(4, 4, 0) && !has_room(4, 4, 1) && has_room(3, 4, 1));
    }

    #[test]
    fn drafts_share_what_is_left() {
        assert_eq!(allot_drafts(10, &[8, 8]), [5, 5]);
        assert_eq!(allot_drafts(10, &[1, 8]), [1, 8]);
        assert_eq!(allot_drafts(0, &[3]), [0]);
        assert_eq!(allot_drafts(1, &[3, 3]), [0, 1]);
    }

    proptest! {
        #[test]
        fn shares_use_the_allowance_and_no_more(
            allowance in 0usize..700,
            left in prop::collection::vec(1usize..900, 0..9),
        ) {
            let shares = share(allowance, &left);
            prop_assert_eq!(shares.iter().sum::<usize>(), allowance.min(left.iter().sum()));
            prop_assert!(shares.iter().zip(&left).all(|(share, left)| share <= left));
            if let (Some(first), Some(left)) = (shares.first(), left.first()) {
                prop_assert!(*first >= (allowance - allowance / 2).min(*left));
            }
        }
    }
}
