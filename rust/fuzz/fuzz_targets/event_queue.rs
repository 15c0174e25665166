//! Compares the event queue with a vector that is sorted by (time, class, insertion).
#![no_main]

use arbitrary::Arbitrary;
use gangline_engine::{EventClass, EventQueue};
use gangline_model::SimTime;
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
enum Step {
    Push { time: i8, class: u8, subject: u8 },
    Pop,
    Compact { divisor: u8 },
}

fuzz_target!(|steps: Vec<Step>| {
    let mut queue = EventQueue::new();
    let mut oracle: Vec<(i64, u8, usize, u32)> = Vec::new();
    for (at, step) in steps.into_iter().enumerate() {
        match step {
            Step::Push {
                time,
                class,
                subject,
            } => {
                let class = match class % 3 {
                    0 => EventClass::Completion,
                    1 => EventClass::Capacity,
                    _ => EventClass::Timer,
                };
                queue.push(SimTime(time.into()), class, subject.into(), at as u32);
                oracle.push((time.into(), class as u8, at, subject.into()));
                oracle.sort_unstable();
            }
            Step::Pop => {
                let wanted = (!oracle.is_empty()).then(|| oracle.remove(0));
                let found = queue
                    .pop()
                    .map(|e| (e.time.0, e.class() as u8, e.generation as usize, e.subject));
                assert_eq!(found, wanted);
            }
            Step::Compact { divisor } => {
                let divisor = u32::from(divisor) + 1;
                queue.compact(|event| event.subject % divisor != 0);
                oracle.retain(|event| event.3 % divisor != 0);
            }
        }
        assert_eq!(queue.len(), oracle.len());
        assert_eq!(
            queue.peek().map(|e| e.generation as usize),
            oracle.first().map(|e| e.2)
        );
    }
});
