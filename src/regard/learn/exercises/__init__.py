"""Exercises: files with one blank each, and the grader that compares your solution with Regard's own code.

exercise_list.py           names, titles, lecture lines; the sheets in `sheets/`. No torch
hints.py                   three hints for each exercise. No torch
progress.py                the answers of the lab's editor and their grades, on this machine. No torch
own_code.py                Regard's own code for an exercise
grading.py                 one function against Regard's: random inputs, usual mistakes, gradients, laws
TOPIC_exercises.py         the reference solutions of exercises, and their common mistakes
grading_process.py         a user's file, graded in a separate process with a time limit
"""
