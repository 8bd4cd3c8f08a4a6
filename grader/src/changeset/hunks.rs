//! The difference between two texts, line by line (Myers, "An O(ND) difference algorithm", 1986).

use std::collections::HashMap;

/// Lines of context around a change.
const CONTEXT: usize = 3;

/// Most edits that are looked for: the search costs the square of it in time and memory. Texts that differ by more
/// are shown as one replacement of what lies between their common ends.
const MOST_EDITS: usize = 1000;

/// What a line of a hunk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    /// In both texts.
    Context,
    /// In the old text only.
    Removed,
    /// In the new text only.
    Added,
}

/// A run of changed lines with the lines around it. Lines keep their newline; a last line may lack it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hunk<'a> {
    /// Lines of the old text before the hunk.
    pub(crate) old_start: usize,
    /// Lines of the new text before the hunk.
    pub(crate) new_start: usize,
    /// Its lines.
    pub(crate) lines: Vec<(Mark, &'a str)>,
}

impl Hunk<'_> {
    /// Lines of the old text in it.
    pub(crate) fn old_len(&self) -> usize {
        self.lines.iter().filter(|(mark, _)| *mark != Mark::Added).count()
    }

    /// Lines of the new text in it.
    pub(crate) fn new_len(&self) -> usize {
        self.lines
            .iter()
            .filter(|(mark, _)| *mark != Mark::Removed)
            .count()
    }
}

/// The lines of a text, each with its newline.
pub(crate) fn lines(text: &str) -> Vec<&str> {
    text.split_inclusive('\n').collect()
}

/// The hunks that turn `old` into `new`.
pub(crate) fn hunks<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<Hunk<'a>> {
    let mut numbers = HashMap::new();
    let mut number = |line: &&'a str| {
        let next = numbers.len();
        *numbers.entry(*line).or_insert(next)
    };
    let (a, b): (Vec<usize>, Vec<usize>) = (
        old.iter().map(&mut number).collect(),
        new.iter().map(&mut number).collect(),
    );
    group(&marks(&a, &b), old, new)
}

/// For each line of both texts in turn, what it is.
fn marks(old: &[usize], new: &[usize]) -> Vec<Mark> {
    let start = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let (old, new) = (&old[start..], &new[start..]);
    let end = old
        .iter()
        .rev()
        .zip(new.iter().rev())
        .take_while(|(a, b)| a == b)
        .count();
    let (old, new) = (&old[..old.len() - end], &new[..new.len() - end]);
    let mut marks = vec![Mark::Context; start];
    match search(old, new) {
        Some(middle) => marks.extend(middle),
        None => {
            marks.extend(vec![Mark::Removed; old.len()]);
            marks.extend(vec![Mark::Added; new.len()]);
        }
    }
    marks.extend(vec![Mark::Context; end]);
    marks
}

/// Myers' greedy search: for 0, 1, 2… edits, how far each diagonal (index in `old` minus index in `new`) gets.
fn search(old: &[usize], new: &[usize]) -> Option<Vec<Mark>> {
    let most = MOST_EDITS.min(old.len() + new.len());
    // `reached[d][k]`: lines of `old` used on the diagonal `2k - d` after `d` edits.
    let mut reached: Vec<Vec<usize>> = Vec::new();
    for edits in 0..=most {
        let mut row = Vec::with_capacity(edits + 1);
        for k in 0..=edits {
            let mut used = match reached.last() {
                None => 0,
                Some(before) => before_step(before, edits, k).0,
            };
            // Written so that no difference goes below zero: new index = used - (2k - edits).
            let mut other = (used + edits).wrapping_sub(2 * k);
            while used < old.len() && other < new.len() && old[used] == new[other] {
                used += 1;
                other += 1;
            }
            row.push(used);
            if used == old.len() && other == new.len() {
                reached.push(row);
                return Some(trace(&reached, k));
            }
        }
        reached.push(row);
    }
    None
}

/// Where the step to diagonal `k` of `edits` edits starts: the lines of `old` used after it, and whether it added a
/// line (else it removed one).
fn before_step(before: &[usize], edits: usize, k: usize) -> (usize, bool) {
    // Diagonal 2k - d comes from 2k - d + 1 (index k of row d - 1) by adding, or from 2k - d - 1 (index k - 1) by
    // removing.
    let added = before.get(k).copied();
    let removed = k.checked_sub(1).map(|k| before[k] + 1);
    match (added, removed) {
        (Some(added), Some(removed)) if added >= removed => (added, true),
        (_, Some(removed)) => (removed, false),
        (added, None) => (added.unwrap_or(edits), true),
    }
}

/// The marks along the path that ended on diagonal `k` of the last row.
fn trace(reached: &[Vec<usize>], mut k: usize) -> Vec<Mark> {
    let mut marks = Vec::new();
    for edits in (0..reached.len()).rev() {
        let used = reached[edits][k];
        let (after_step, added) = match edits.checked_sub(1) {
            None => (0, None),
            Some(before) => {
                let (used, added) = before_step(&reached[before], edits, k);
                (used, Some(added))
            }
        };
        marks.extend(std::iter::repeat_n(Mark::Context, used - after_step));
        match added {
            None => {}
            Some(true) => marks.push(Mark::Added),
            Some(false) => {
                marks.push(Mark::Removed);
                k -= 1;
            }
        }
    }
    marks.reverse();
    marks
}

/// Cuts marked lines into hunks with context.
fn group<'a>(marks: &[Mark], old: &[&'a str], new: &[&'a str]) -> Vec<Hunk<'a>> {
    let mut hunks: Vec<Hunk<'a>> = Vec::new();
    let (mut a, mut b) = (0, 0);
    let mut last_change: Option<usize> = None;
    for (at, mark) in marks.iter().enumerate() {
        if *mark != Mark::Context {
            if last_change.is_none_or(|last| at - last > 2 * CONTEXT + 1) {
                let context = a.min(CONTEXT).min(last_change.map_or(at, |last| at - last - 1));
                let before = old[a - context..a].iter().map(|line| (Mark::Context, *line));
                hunks.push(Hunk {
                    old_start: a - context,
                    new_start: b - context,
                    lines: before.collect(),
                });
            } else if let (Some(hunk), Some(last)) = (hunks.last_mut(), last_change) {
                // What came after the last change and is not in the hunk yet.
                let skipped = (at - last - 1).saturating_sub(CONTEXT);
                hunk.lines
                    .extend(old[a - skipped..a].iter().map(|line| (Mark::Context, *line)));
            }
            last_change = Some(at);
        }
        let line = if *mark == Mark::Added { new[b] } else { old[a] };
        let trailing = last_change.is_some_and(|last| at - last <= CONTEXT);
        if let (Some(hunk), true) = (hunks.last_mut(), trailing) {
            hunk.lines.push((*mark, line));
        }
        a += usize::from(*mark != Mark::Added);
        b += usize::from(*mark != Mark::Removed);
    }
    hunks
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sides(hunks: &[Hunk<'_>], old: &[&str]) -> Vec<String> {
        let mut new: Vec<String> = Vec::new();
        let mut at = 0;
        for hunk in hunks {
            assert!(hunk.old_start >= at);
            new.extend(old[at..hunk.old_start].iter().map(ToString::to_string));
            assert_eq!(new.len(), hunk.new_start);
            at = hunk.old_start;
            for (mark, line) in &hunk.lines {
                if *mark != Mark::Added {
                    assert_eq!(old[at], *line);
                    at += 1;
                }
                if *mark != Mark::Removed {
                    new.push((*line).to_owned());
                }
            }
        }
        new.extend(old[at..].iter().map(ToString::to_string));
        new
    }

    proptest! {
        #[test]
        fn hunks_turn_the_old_text_into_the_new(
            old in proptest::collection::vec("[abc]", 0..40),
            new in proptest::collection::vec("[abc]", 0..40),
        ) {
            let old: Vec<&str> = old.iter().map(String::as_str).collect();
            let new: Vec<&str> = new.iter().map(String::as_str).collect();
            prop_assert_eq!(sides(&hunks(&old, &new), &old), new);
        }
    }

    #[test]
    fn finds_the_shortest_script() {
        let (old, new) = (
            ["a", "b", "c", "a", "b", "b", "a"],
            ["c", "b", "a", "b", "a", "c"],
        );
        let found = hunks(&old, &new);
        let edits = found
            .iter()
            .flat_map(|hunk| &hunk.lines)
            .filter(|(mark, _)| *mark != Mark::Context);
        assert_eq!(edits.count(), 5, "Myers' own example has five edits");
    }

    #[test]
    fn far_changes_are_hunks_of_their_own_and_near_ones_are_not() {
        let old: Vec<String> = (0..40).map(|line| line.to_string()).collect();
        let old: Vec<&str> = old.iter().map(String::as_str).collect();
        let changed = |places: &[usize]| {
            let mut new = old.clone();
            places.iter().for_each(|place| new[*place] = "x");
            hunks(&old, &new)
                .iter()
                .map(|hunk| (hunk.old_start, hunk.lines.len()))
                .collect::<Vec<_>>()
        };
        assert_eq!(changed(&[10, 17]), [(7, 16)]);
        assert_eq!(changed(&[10, 18]), [(7, 8), (15, 8)]);
        assert_eq!(changed(&[0, 39]), [(0, 5), (36, 5)]);
    }

    #[test]
    fn texts_without_anything_in_common_cost_little() {
        let texts: Vec<String> = (0..60_000).map(|line| line.to_string()).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let found = hunks(&texts[..30_000], &texts[30_000..]);
        assert_eq!(found.len(), 1);
        assert_eq!(sides(&found, &texts[..30_000]), &texts[30_000..]);
    }
}
