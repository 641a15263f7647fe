"""Jobs that take more than one room: training with a dev set and a report, the demo, a look at the machine."""
