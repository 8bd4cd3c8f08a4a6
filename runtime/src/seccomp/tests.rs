use super::*;
#[test]
fn smoke() {
    for name in PROFILES {
        let p = profile(name).unwrap();
        let prog = compile(&p).unwrap();
        println!("{prog}");
        println!("{name}: {}", prog.instructions.len());
        prog.check_launch_set().unwrap();
        assert!(unknown_names(&p).is_empty());
    }
}
