"""The drawings of the machines, and the program that makes them from the tables. Imports machines and nothing else."""
