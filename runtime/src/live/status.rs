//! Fields of proc_pid_status(5).

use std::collections::BTreeMap;

/// A process's `status`, field by field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status<'a>(BTreeMap<&'a str, &'a str>);

impl<'a> Status<'a> {
    /// The fields of a text. Lines without a colon are none; of two with one name the last counts, and the kernel
    /// escapes line ends in the one field that a process chooses, its name.
    pub fn of(text: &'a str) -> Self {
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        Status(fields.map(|(key, value)| (key, value.trim())).collect())
    }

    /// Whether there is no field, as for a process that has ended.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A field without the white space around it.
    pub fn field(&self, key: &str) -> Option<&'a str> {
        self.0.get(key).copied()
    }

    /// The numbers of a field, as of `Uid` and `Groups`; words that are none are left out.
    pub fn numbers(&self, key: &str) -> Vec<u32> {
        let words = self.field(key).unwrap_or_default().split_whitespace();
        words.filter_map(|word| word.parse().ok()).collect()
    }

    /// The first number of a field.
    pub fn number(&self, key: &str) -> Option<u32> {
        self.numbers(key).first().copied()
    }

    /// Names of the capabilities in a mask, as of `CapEff`; one without a name is `CAP_` and its number.
    pub fn capabilities(&self, key: &str) -> Vec<String> {
        let mask = u64::from_str_radix(self.field(key).unwrap_or_default(), 16).unwrap_or(0);
        let name = |number: u8| {
            let known = caps::all().into_iter().find(|capability| capability.index() == number);
            known.map_or_else(|| format!("CAP_{number}"), |capability| capability.to_string())
        };
        (0..64).filter(|number| mask & 1 << number != 0).map(name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_named() {
        let names = |mask: &str| Status::of(&format!("CapEff:\t{mask}\n")).capabilities("CapEff");
        assert_eq!(names("0000000000200001"), ["CAP_CHOWN", "CAP_SYS_ADMIN"]);
        assert_eq!(names("8000000000000000"), ["CAP_63"]);
        assert_eq!(names(""), [""; 0]);
        assert_eq!(Status::of("").capabilities("CapEff"), [""; 0]);
    }

    #[test]
    fn fields_are_trimmed_and_their_numbers_read() {
        let status = Status::of("Name:\ta:b\nUid:\t1\t2\t3\t4\nGroups:\t \njunk\n");
        assert_eq!((status.field("Name"), status.field("junk")), (Some("a:b"), None));
        assert_eq!((status.numbers("Uid"), status.number("Uid")), (vec![1, 2, 3, 4], Some(1)));
        assert_eq!((status.numbers("Groups"), status.number("Groups")), (vec![], None));
    }
}
