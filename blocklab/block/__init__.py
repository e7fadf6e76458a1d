"""The block: configuration, rotary table, masks, operations, attention, MLP, and the taps on its steps."""
