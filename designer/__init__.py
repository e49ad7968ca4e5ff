"""Turns a problem into a program: the bank that needs no model, prompts for a model, extraction, check, repair.

Import what you need from its modules: `designer.bank.design_from_bank`, `designer.sample.sample_designs`,
`designer.check.check_program`, `designer.extract.extract_program`. Not here: running programs (`sandbox`), and training
who writes them (`trainer`).
"""
