//! Selection among checkpoints.

use std::cmp::Ordering;

use super::{Direction, Score, UnequalDenominators};

/// A checkpoint that was scored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// How far training had come; grows with it.
    pub progress: u64,
    /// None where the checkpoint was not valid or its score is void.
    pub score: Option<Score>,
}

/// The index of the best valid checkpoint: the greatest score under the direction, of equal ones that with
/// the greater progress, and of those the last. None if none is valid.
pub fn best_valid(
    direction: Direction,
    checkpoints: &[Checkpoint],
) -> Result<Option<usize>, UnequalDenominators> {
    let mut best: Option<(usize, u64, Score)> = None;
    for (index, checkpoint) in checkpoints.iter().enumerate() {
        let Some(score) = checkpoint.score else { continue };
        let better = match best {
            None => true,
            Some((_, progress, best)) => match direction.quality(score.compare(best)?) {
                Ordering::Greater => true,
                Ordering::Equal => checkpoint.progress >= progress,
                Ordering::Less => false,
            },
        };
        if better {
            best = Some((index, checkpoint.progress, score));
        }
    }
    Ok(best.map(|(index, ..)| index))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(list: &[(u64, Option<&str>)]) -> Vec<Checkpoint> {
        let score = |text: &str| text.parse::<super::super::Decimal>().unwrap().into();
        list.iter()
            .map(|(progress, text)| Checkpoint {
                progress: *progress,
                score: text.map(score),
            })
            .collect()
    }

    #[test]
    fn the_best_under_the_direction_is_taken() {
        let list = of(&[
            (100, Some("53.4")),
            (200, None),
            (300, Some("51.25")),
            (400, Some("60")),
        ]);
        assert_eq!(best_valid(Direction::Min, &list), Ok(Some(2)));
        assert_eq!(best_valid(Direction::Max, &list), Ok(Some(3)));
    }

    #[test]
    fn ties_go_to_later_progress_in_any_order() {
        let list = of(&[(300, Some("0.5")), (100, Some("0.50")), (200, Some("5e-1"))]);
        assert_eq!(best_valid(Direction::Max, &list), Ok(Some(0)));
        assert_eq!(best_valid(Direction::Min, &list), Ok(Some(0)));
        let twice = of(&[(7, Some("1")), (7, Some("1"))]);
        assert_eq!(best_valid(Direction::Max, &twice), Ok(Some(1)));
    }

    #[test]
    fn a_difference_below_double_precision_decides() {
        let list = of(&[(1, Some("0.30000000000000000001")), (2, Some("0.3"))]);
        assert_eq!(best_valid(Direction::Max, &list), Ok(Some(0)));
        assert_eq!(best_valid(Direction::Min, &list), Ok(Some(1)));
    }

    #[test]
    fn nothing_valid_is_no_checkpoint() {
        assert_eq!(best_valid(Direction::Max, &of(&[(1, None), (2, None)])), Ok(None));
        assert_eq!(best_valid(Direction::Max, &[]), Ok(None));
    }

    #[test]
    fn scores_over_different_plans_are_not_compared() {
        let mut list = of(&[(1, Some("3")), (2, Some("4"))]);
        list[0].score.as_mut().unwrap().n = 5.try_into().unwrap();
        assert!(best_valid(Direction::Max, &list).is_err());
    }
}
