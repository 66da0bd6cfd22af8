"""What became of a program: reports, explanations, pages and the playground."""
