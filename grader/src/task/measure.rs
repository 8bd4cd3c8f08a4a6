//! What is measured: metrics, their planned items, the ladder, known scores.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

use airlock_policy::embed::{At, Fault, Source, read_file};

use super::draft::Draft;
use super::resolved::NamedMetric;
use super::schema::{Items, ItemsTable, LadderTable, MetricTable, Number};
use crate::score::{
    Aggregate, Decimal, Direction, FailedItem, Ladder, LadderError, Metric, MetricError, Phi, Uninformative,
};

/// Far more than any benchmark has.
const MOST_ITEMS: u32 = 1_000_000;
/// Far more attempts than any benchmark makes.
const MOST_ATTEMPTS: u32 = 10_000;
/// Longest name of an item, in bytes.
const LONGEST_NAME: usize = 200;

impl Draft<'_> {
    pub(super) fn metric(&mut self, table: &MetricTable) -> Option<NamedMetric> {
        let name = self.name(&table.name);
        let items = self.items(&table.items);
        let k = match &table.k {
            Some(k) => self.count(k, 1, MOST_ATTEMPTS, "number of attempts").and_then(NonZeroU32::new),
            None => Some(NonZeroU32::MIN),
        };
        let aggregate = table.aggregate.as_ref().map_or(Aggregate::Mean, |aggregate| **aggregate);
        let failed = table.failed_item.as_ref().map_or(usual_failure(*table.direction), |failed| **failed);
        let metric = Metric::new(*table.direction, aggregate, k?, failed, items?);
        let metric = metric.map_err(|error| {
            let span = match (&error, &table.k, &table.failed_item) {
                (MetricError::NoItems | MetricError::TwiceTheSame(_), ..) => table.items.span(),
                (MetricError::MeanOfSeveral(_), Some(k), _) => k.span(),
                (MetricError::ZeroIsBest, _, Some(failed)) => failed.span(),
                _ => table.direction.span(),
            };
            self.fault(span, Fault::new(error.to_string()));
        });
        Some(NamedMetric { name: name?, metric: metric.ok()? })
    }

    fn items(&mut self, items: &At<Items>) -> Option<Vec<String>> {
        match &**items {
            Items::Named(names) => {
                let source = self.source.clone();
                let spanned = names.iter().map(|name| (name.as_str(), name.span()));
                self.names(&source, spanned)
            }
            Items::Table(ItemsTable { file: Some(file), count: None, prefix: None }) => self.items_file(file),
            Items::Table(ItemsTable { file: None, count: Some(count), prefix }) => {
                let count = self.count(count, 1, MOST_ITEMS, "number of items")?;
                let prefix = prefix.as_ref().map_or("item-", |prefix| prefix.as_str());
                if let Err(fault) = item(prefix) {
                    self.at(items, fault);
                    return None;
                }
                Some((0..count).map(|number| format!("{prefix}{number}")).collect())
            }
            Items::Table(_) => {
                let fault = Fault::new("items are named by a file, or by a count and a prefix");
                self.at(
                    items,
                    fault.help("{ file = \"tests/items.txt\" } or { count = 350, prefix = \"task-\" }"),
                );
                None
            }
        }
    }

    fn items_file(&mut self, file: &At<String>) -> Option<Vec<String>> {
        let path = self.dir.join(self.existing(file)?);
        let text =
            read_file(&path).map_err(|error| Fault::new(format!("read items {}: {error}", path.display())));
        let text = self.ok(file, text)?;
        let source = Source::new(&path.display().to_string(), &text);
        let mut start = 0;
        let lines: Vec<_> = text
            .split_inclusive('\n')
            .map(|line| {
                let name = line.trim_end_matches('\n').trim_end_matches('\r');
                let span = start..start + name.len();
                start += line.len();
                (name, span)
            })
            .collect();
        if lines.is_empty() {
            self.at(file, Fault::new(format!("{} plans no item", path.display())));
            return None;
        }
        self.names(&source, lines.into_iter())
    }

    fn names<'a>(
        &mut self,
        source: &Source,
        names: impl Iterator<Item = (&'a str, std::ops::Range<usize>)>,
    ) -> Option<Vec<String>> {
        let before = self.findings.len();
        let mut seen = BTreeSet::new();
        let mut good = Vec::new();
        for (name, span) in names {
            let checked = item(name).and_then(|()| match seen.insert(name) {
                true => Ok(()),
                false => Err(Fault::new(format!("the item `{name}` is planned twice"))),
            });
            match checked {
                Ok(()) => good.push(name.to_owned()),
                Err(fault) => self.findings.push(fault.at(source.place(span)).into()),
            }
        }
        (self.findings.len() == before).then_some(good)
    }

    pub(super) fn ladder(&mut self, table: &LadderTable, direction: &At<Direction>) -> Option<Ladder> {
        let uninformative = match self.source.text(table.uninformative.span()) {
            "inf" | "+inf" => Some(Uninformative::Infinity),
            "-inf" => Some(Uninformative::NegativeInfinity),
            _ => self.decimal(&table.uninformative).map(Uninformative::Finite),
        };
        let (baseline, optimum) = (self.decimal(&table.baseline), self.decimal(&table.optimum));
        let rises = **direction == Direction::Max;
        if rises != (*table.phi == Phi::Identity) {
            let (word, phi) = if rises { ("max", "`identity`") } else { ("min", "`negate` or `neg-log`") };
            let message = format!(
                "under the direction `{word}` a greater quality is a {} score",
                if rises { "greater" } else { "smaller" }
            );
            self.at(&table.phi, Fault::new(message).help(format!("phi is {phi}")));
            return None;
        }
        let below = table.below.as_ref().map(|below| **below);
        let ladder = Ladder::new(*table.phi, uninformative?, baseline?, optimum?, below);
        ladder
            .map_err(|error| {
                let point = |name| match name {
                    "optimum" => table.optimum.span(),
                    "baseline" => table.baseline.span(),
                    _ => table.uninformative.span(),
                };
                let span = match (&error, &table.below) {
                    (
                        LadderError::NoLogarithm { point: name, .. }
                        | LadderError::Order { better: name, .. },
                        _,
                    ) => point(name),
                    (LadderError::RatioOfNonPositive(_), _) => point("baseline"),
                    (LadderError::InfinitelyGood(_), _) => point("uninformative"),
                    (LadderError::TooFar(name, _), _) => point(name),
                    (_, Some(below)) => below.span(),
                    (_, None) => table.phi.span(),
                };
                self.fault(span, Fault::new(error.to_string()));
            })
            .ok()
    }

    /// Known scores; one that is called `paper_value` is the ladder's baseline.
    pub(super) fn references(
        &mut self,
        stated: &BTreeMap<At<String>, At<Number>>,
        ladder: Option<&LadderTable>,
    ) -> BTreeMap<String, Decimal> {
        let mut references = BTreeMap::new();
        for (name, value) in stated {
            let (Some(key), Some(number)) = (self.name(name), self.decimal(value)) else { continue };
            let baseline = ladder.map(|ladder| self.source.text(ladder.baseline.span()).parse::<Decimal>());
            if let Some(Ok(baseline)) = baseline
                && key == "paper_value"
                && baseline != number
            {
                let message =
                    format!("the paper's value is {number}, and the ladder's baseline is {baseline}");
                self.at(value, Fault::new(message).help("the ladder stands on the paper's value"));
            }
            references.insert(key, number);
        }
        references
    }

    fn decimal(&mut self, number: &At<Number>) -> Option<Decimal> {
        let text = self.source.text(number.span());
        let parsed =
            text.parse().map_err(|error| Fault::new(format!("`{text}` is not a finite decimal: {error}")));
        self.ok(number, parsed)
    }
}

/// Zero is the worst score of what is best when greatest, as a rule.
fn usual_failure(direction: Direction) -> FailedItem {
    match direction {
        Direction::Max => FailedItem::Zero,
        Direction::Min => FailedItem::Void,
    }
}

fn item(name: &str) -> Result<(), Fault> {
    if name.is_empty() || name.len() > LONGEST_NAME || name.trim() != name || name.contains(char::is_control)
    {
        return Err(Fault::new(format!(
            "an item's name is 1 to {LONGEST_NAME} bytes without control characters or white space around it"
        )));
    }
    Ok(())
}
