//! Programs that a long-lived launcher has compiled before.

use std::rc::Rc;

use oci_spec::runtime::LinuxSeccomp;

use super::SeccompError;
use super::compile::compile;
use super::program::Program;

/// The most recently used programs, by document.
///
/// Documents are compared whole: that takes less time than a digest of one, and cannot collide.
#[derive(Debug, Default)]
pub struct Cache {
    /// Most recently used first.
    entries: Vec<(LinuxSeccomp, Rc<Program>)>,
}

impl Cache {
    /// How many programs are kept.
    pub const CAPACITY: usize = 16;

    /// The document's program, compiled unless it is here.
    pub fn program(&mut self, document: &LinuxSeccomp) -> Result<Rc<Program>, SeccompError> {
        if let Some(at) = self.entries.iter().position(|(known, _)| known == document) {
            self.entries[..=at].rotate_right(1);
        } else {
            let program = Rc::new(compile(document)?);
            self.entries.truncate(Self::CAPACITY - 1);
            self.entries.insert(0, (document.clone(), program));
        }
        Ok(Rc::clone(&self.entries[0].1))
    }
}

#[cfg(test)]
mod tests {
    use super::super::profile::{PROFILES, profile};
    use super::*;

    #[test]
    fn a_program_is_compiled_once_while_it_is_used() {
        let capacity = u32::try_from(Cache::CAPACITY).unwrap();
        let mut cache = Cache::default();
        let default = profile("default").unwrap();
        let first = cache.program(&default).unwrap();
        assert_eq!(*first, compile(&default).unwrap());
        for errno in 0..capacity - 1 {
            let mut other = profile(PROFILES[1]).unwrap();
            other.set_default_errno_ret(Some(errno + 2));
            cache.program(&other).unwrap();
        }
        assert!(Rc::ptr_eq(&first, &cache.program(&default).unwrap()));
        for errno in 0..capacity {
            let mut other = default.clone();
            other.set_default_errno_ret(Some(errno + 2));
            assert_ne!(cache.program(&other).unwrap(), first);
        }
        assert!(!Rc::ptr_eq(&first, &cache.program(&default).unwrap()));
    }
}
