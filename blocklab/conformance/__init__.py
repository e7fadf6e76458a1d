"""The conformance kit: small questions for any implementation, and scores that say what is wrong in its answers."""

from blocklab.conformance.kit import all_parts, check_answers, write_questions

__all__ = ["all_parts", "check_answers", "write_questions"]
