//! Which step of the plan a fault was in.

use serde_json::Value;

use crate::inject::{MONITOR, Point};
use crate::stage::Stage;

/// The steps of the plan of a launch, each as its action's name and in the words that an error has.
#[derive(Debug)]
pub(crate) struct Steps {
    host: Vec<(String, String)>,
    child: Vec<(String, String)>,
}

impl Steps {
    pub(crate) fn of(stage: &Stage) -> Steps {
        let (data, words) = stage.plan();
        let (_, rest) = words.split_once("host side\n").unwrap();
        let (host, rest) = rest.split_once("child side\n").unwrap();
        let (child, _) = rest.split_once("payload\n").unwrap();
        let side = |name: &str, words: &str| {
            let actions = data[name].as_array().unwrap().iter().map(|step| text(step, "action"));
            let clauses = data[name].as_array().unwrap().iter().map(|step| text(step, "clause"));
            // `  12  CLAUSE    ACTION`
            let lines = words.lines().map(|line| line.trim_start().split_once("  ").unwrap().1.to_owned());
            let steps = actions.zip(clauses).zip(lines).map(|((action, clause), line)| {
                let words = line.strip_prefix(&clause).unwrap().trim_start().to_owned();
                (action, format!("{words} ({clause})"))
            });
            steps.collect()
        };
        let mut steps = Steps { host: side("host", host), child: side("child", child) };
        if stage.has_terminal() {
            // Which `plan` does not ask for.
            let pivot = steps.child.iter().position(|(action, _)| action == "pivot").unwrap();
            let words = "open the pseudo-terminal (process)".to_owned();
            steps.child.insert(pivot + 1, ("open-terminal".into(), words));
        }
        steps
    }

    /// Side and action of every step, in the plan's order.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&'static str, String)> + '_ {
        let host = self.host.iter().map(|(action, _)| ("host", action.clone()));
        host.chain(self.child.iter().map(|(action, _)| ("child", action.clone())))
    }

    /// The words of the step that init is at, by its process's name.
    pub(crate) fn named_by(&self, who: &str) -> Option<&str> {
        self.of_init(who).map(|(_, words)| words.as_str())
    }

    /// The action of that step.
    pub(crate) fn action_of(&self, who: &str) -> Option<&str> {
        self.of_init(who).map(|(action, _)| action.as_str())
    }

    fn of_init(&self, who: &str) -> Option<&(String, String)> {
        let index: usize = who.strip_prefix("init step ")?.parse().ok()?;
        self.child.get(index)
    }

    /// Side and action of the step of a fault, or what else it was in.
    pub(crate) fn place(&self, point: &Point, error: &str) -> (&'static str, String) {
        let said = without_id(error);
        let step_of = |side: &[(String, String)]| {
            side.iter().find(|(_, words)| said.contains(words.as_str())).map(|(action, _)| action.clone())
        };
        if let Some(action) = self.action_of(&point.who) {
            return ("child", action.into());
        }
        if let Some(action) = step_of(&self.host) {
            return ("host", action);
        }
        if point.who != MONITOR {
            return ("init", "start and wait".into());
        }
        let what = said.strip_prefix("airlock: ").and_then(|said| said.split(": ").next());
        let what = what.filter(|what| !what.starts_with('/') && what.len() < 40 && !what.contains(" /"));
        ("monitor", what.unwrap_or("else").into())
    }
}

/// The name of a sandbox is another each time; the plan that is shown calls it `ID`.
fn without_id(text: &str) -> String {
    let is_id = |word: &str| word.len() == 12 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let pieces = text.split_inclusive(|c: char| !c.is_ascii_alphanumeric());
    let renamed = pieces.map(|piece| match piece.trim_end_matches(|c: char| !c.is_ascii_alphanumeric()) {
        word if is_id(word) => piece.replace(word, "ID"),
        _ => piece.to_owned(),
    });
    renamed.collect()
}

fn text(step: &Value, key: &str) -> String {
    step[key].as_str().unwrap().to_owned()
}
