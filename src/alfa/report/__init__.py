"""Tables and figures of measurements; reads run folders and never trains."""
