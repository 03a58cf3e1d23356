"""Tables and pictures of what was measured; reads run folders, never trains."""

from alfa.report.load import TrainedRun, load_run
from alfa.report.page import write_demo_page

__all__ = ["TrainedRun", "load_run", "write_demo_page"]
