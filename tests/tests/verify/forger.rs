//! Somebody who can compute digests, and may hold a signing key.

use std::fs;

use airlock_grader::Digest;
use airlock_grader::journal::{Event, Genesis, Head, Record};
use airlock_grader::receipt::{self, Predicate, SecretKey, Statement, Subject};

use crate::copies::Copy;

pub(crate) struct Forger<'a> {
    copy: &'a Copy,
}

impl<'a> Forger<'a> {
    pub(crate) fn of(copy: &'a Copy) -> Forger<'a> {
        Forger { copy }
    }

    pub(crate) fn records(&self) -> Vec<Record> {
        let text = fs::read_to_string(self.copy.path("journal.jsonl")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Changes the journal, and computes its chain again.
    pub(crate) fn journal(&self, change: impl FnOnce(&mut Vec<Record>)) {
        let mut records = self.records();
        let Event::RunCreated { run_id, .. } = records[0].event.clone() else { panic!("{records:?}") };
        change(&mut records);
        let run = Digest::of(&fs::read(self.copy.path("run.json")).unwrap());
        let mut prev = Genesis { run_id, run }.digest().unwrap();
        let mut lines = Vec::new();
        let (mut boot_ns, mut seq) = (0, 0);
        for record in &mut records {
            // Lines that changed places keep the clock in order.
            boot_ns = record.boot_ns.max(boot_ns);
            (record.seq, record.prev, record.boot_ns) = (seq, prev, boot_ns);
            let line = record.line().unwrap();
            (seq, prev) = (seq + 1, Digest::of(&line));
            lines.extend(line);
        }
        fs::write(self.copy.path("journal.jsonl"), lines).unwrap();
    }

    /// Changes the events of the journal.
    pub(crate) fn events(&self, mut change: impl FnMut(&mut Event)) {
        self.journal(|records| records.iter_mut().for_each(|record| change(&mut record.event)));
    }

    /// Signs what lies there, with what the receipt said and this change.
    pub(crate) fn sign(&self, key: &SecretKey, change: impl FnOnce(&mut Predicate)) {
        let mut predicate = self.predicate();
        let journal = fs::read(self.copy.path("journal.jsonl")).unwrap();
        let lines: Vec<&[u8]> = journal.split_inclusive(|byte| *byte == b'\n').collect();
        predicate.journal = Head {
            lines: lines.len() as u64,
            bytes: journal.len() as u64,
            digest: Digest::of(lines.last().unwrap()),
        };
        change(&mut predicate);
        let named = |name: &String| {
            name != "receipt.json" && !(name.starts_with("store/") && name.contains("/tree/"))
        };
        let subjects = self.copy.files().into_iter().filter(named).map(|name| {
            let digest = Digest::of(&fs::read(self.copy.path(&name)).unwrap());
            Subject::new(name, digest)
        });
        let receipt = receipt::sign(&Statement::new(subjects.collect(), predicate), key).unwrap();
        fs::write(self.copy.path("receipt.json"), receipt).unwrap();
    }

    /// What the receipt said before.
    fn predicate(&self) -> Predicate {
        let receipt = fs::read(self.copy.path("receipt.json")).unwrap();
        receipt::verify(&receipt, &self.copy.key).unwrap().predicate
    }
}
